package program_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// beRascal is the life of a misbehaving program: os.Args are its behaviour and
// the token that the test finds it by, which all of its children bear too.
func beRascal() {
	behaviour, token := os.Args[1], os.Args[2]
	switch behaviour {
	case "hang":
	case "children":
		spawn("hang", token, nil)
		spawn("hang", token, nil)
	case "setsid": // in a session of its own, without the mark
		spawn("hang", token, &syscall.SysProcAttr{Setsid: true})
	case "orphan": // in a session of its own, without the mark, and its parent ends
		spawn("orphan-parent", token, &syscall.SysProcAttr{Setsid: true})
	case "orphan-parent":
		spawn("hang", token, &syscall.SysProcAttr{Setsid: true})
		os.Exit(0)
	case "daemon": // as orphan, and the program ends as well
		cmd := spawn("orphan-parent", token, &syscall.SysProcAttr{Setsid: true})
		_ = cmd.Wait()
		fmt.Println("started it")
		os.Exit(0)
	case "bomb": // starts children faster than one can count
		for range 40 {
			spawn("bomb-child", token, nil)
		}
	case "bomb-child":
		for range 3 {
			spawn("hang", token, &syscall.SysProcAttr{Setsid: true})
		}
	case "patricide": // kills its keeper
		cmd := exec.Command(os.Args[0], "hang", token)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start() // with the mark
		_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
	case "endless":
		out := bufio.NewWriterSize(os.Stdout, 1<<20)
		for {
			_, _ = out.WriteString("yes, and on and on\n")
		}
	case "gigabyte":
		chunk := []byte(strings.Repeat("x", 1<<20))
		for range 1 << 10 {
			_, _ = os.Stdout.Write(chunk)
		}
		os.Exit(0)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	<-time.After(10 * time.Minute)
	os.Exit(0)
}

func spawn(behaviour, token string, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := exec.Command(os.Args[0], behaviour, token)
	cmd.Env = []string{rascalVariable + "=yes"}
	cmd.SysProcAttr = attr
	if behaviour == "hang" {
		cmd.Stdout = os.Stdout // held open for ever
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return cmd
}

// alive are the processes that bear the token.
func alive(t testing.TB, token string) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(names) == 0 {
		t.Fatal("this system shows no processes", err)
	}
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err == nil && slices.Contains(strings.Split(string(line), "\x00"), token) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitAlive returns when n processes bear the token.
func awaitAlive(t testing.TB, token string, n int) {
	t.Helper()
	over := time.After(patience)
	for {
		pids := alive(t, token)
		if len(pids) == n {
			return
		}
		select {
		case <-over:
			t.Fatalf("the processes are %v, not %d", pids, n)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
