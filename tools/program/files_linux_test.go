package program_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/tools/program"
)

// A program has only the three files and the variables that it is given,
// whatever this process has inherited.
func TestWhatAProgramHas(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = read.Close(), write.Close() }()
	inherited, err := syscall.Dup(int(write.Fd())) // not closed on exec, like an inherited file
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	p := sh("ls /proc/self/fd; tr '\\0' '\\n' </proc/$$/environ | sed 's/=.*//' | sort")
	p.Env = []string{"PATH=/usr/bin:/bin", "A=b"}
	got := strings.Fields(execute(t, p, `{}`, patience).Result.Text)
	want := []string{"0", "1", "2", "3", // 3 is the directory that ls reads
		"A", "PATH", program.EnvAgent, program.EnvCall, program.EnvConversation, program.EnvIdempotencyKey,
		program.EnvFamily, program.EnvTurn, program.EnvUser}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("it has %s, want %s", got, want)
	}
}
