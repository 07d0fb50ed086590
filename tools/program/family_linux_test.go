package program

import (
	"bufio"
	"crypto/rand"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/tools"
)

// A clan is a shell with two children and a grandchild in a session of its own. All have a mark.
type clan struct {
	*exec.Cmd
	mark        string
	descendants []int // the children and the grandchild
}

func newClan(t *testing.T) *clan {
	t.Helper()
	c := &clan{mark: rand.Text()}
	c.Cmd = exec.Command("/bin/sh", "-c", `sleep 600 & echo $!; setsid sh -c 'sleep 600 & echo $! $$; wait' & wait`)
	c.Env = []string{"PATH=/usr/bin:/bin", EnvFamily + "=" + c.mark}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range append(c.descendants, c.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = c.Wait()
	})
	words := bufio.NewScanner(out)
	words.Split(bufio.ScanWords)
	for len(c.descendants) < 3 && words.Scan() {
		pid, err := strconv.Atoi(words.Text())
		if err != nil {
			t.Fatal(err)
		}
		c.descendants = append(c.descendants, pid)
	}
	slices.Sort(c.descendants)
	return c
}

// alive returns those of the processes that have not ended.
func alive(pids []int) (left []int) {
	for _, pid := range pids {
		if _, state, ok := statOf(pid); ok && state != 'Z' && state != 'X' {
			left = append(left, pid)
		}
	}
	return left
}

func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); len(alive(pids)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("processes %v live on", alive(pids))
		}
	}
}

// TestWhoBelongsToAFamily checks that all descendants of a process are found, also those in another session, and no
// others; and which processes bear a mark.
func TestWhoBelongsToAFamily(t *testing.T) {
	t.Parallel()
	one, two := newClan(t), newClan(t)
	for _, c := range []*clan{one, two} {
		got, ok := under(c.Process.Pid)
		if slices.Sort(got); !ok || !slices.Equal(got, c.descendants) {
			t.Errorf("under %d are %v, %t, want %v", c.Process.Pid, got, ok, c.descendants)
		}
		got = bearing(c.mark)
		want := append([]int{c.Process.Pid}, c.descendants...)
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("the mark is borne by %v, want %v", got, want)
		}
		if got := bearing(c.mark[:len(c.mark)-1]); len(got) != 0 {
			t.Errorf("a part of the mark is borne by %v", got)
		}
	}
	if parent, state, ok := statOf(one.Process.Pid); parent != os.Getpid() || !ok || !strings.ContainsRune("SRD",
		rune(state)) {
		t.Errorf("the shell has the parent %d and the state %c, %t", parent, state, ok)
	}
	if _, _, ok := statOf(-1); ok {
		t.Error("there is a process -1")
	}
	killUnder(one.Process.Pid, one.Process.Pid)
	awaitEnd(t, one.descendants)
	if left := alive(two.descendants); len(left) != 3 {
		t.Errorf("of the other family, only %v are left", left)
	}
	sweep(two.mark)
	if got := bearing(two.mark); len(got) > 0 {
		t.Errorf("after the sweep, the mark is borne by %v", got)
	}
	awaitEnd(t, append(two.descendants, two.Process.Pid)) // a process gives up its environment before it has ended
}

// TestAProcessWithANameLikeItsState checks that the name of a process does not count as its parent or state.
func TestAProcessWithANameLikeItsState(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/x) Z 1 ("
	if err := os.Symlink("/bin/sleep", path); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	parent, state, ok := statOf(c.Process.Pid)
	if !ok || parent != os.Getpid() || state == 'Z' {
		t.Errorf("parent %d, state %c, %t", parent, state, ok)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if _, _, ok := statOf(c.Process.Pid); ok {
		t.Error("it is still there")
	}
}

// TestNoFileIsLeftOpen checks that calls and long programs leave no file of this process open, whether they end well,
// badly or not at all.
func TestNoFileIsLeftOpen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collected file is closed
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	sh := func(script string) Program { return Program{Argv: []string{"/bin/sh", "-c", script}} }
	call := func(p Program) func() {
		return func() {
			_ = tools.Execute(t.Context(), Tool(tools.Spec{Name: "t"}, p), tools.Call{Arguments: []byte(`{}`)},
				tools.ExecuteOptions{Timeout: time.Minute})
		}
	}
	long := func(p Program, end func(*Process), want string) func() {
		return func() {
			process, err := Start(p)
			if err != nil {
				t.Error(err)
				return
			}
			end(process)
			<-process.Done()
			if got := process.Ended(); got != want {
				t.Errorf("it %s, want: it %s", got, want)
			}
			closePipes([]*os.File{process.Stdin, process.Stdout, process.Stderr})
		}
	}
	wait := func(*Process) {}
	refused := func(p Program, want string) func() {
		return func() {
			if process, err := Start(p); process != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %v, want %q", process, err, want)
			}
		}
	}
	for name, does := range map[string]func(){
		"a call":                   call(sh("cat")),
		"a call that fails":        call(sh("exit 3")),
		"a call without a program": call(Program{Argv: []string{"/nowhere"}}),
		"a call without a folder":  call(Program{Argv: []string{"/bin/true"}, Dir: "/nowhere"}),
		"a program": long(sh("cat"), func(p *Process) {
			_ = p.Stdin.Close()
		}, "ended with exit code 0"),
		"a program that fails":        long(sh("exit 3"), wait, "ended with exit code 3"),
		"a program that kills itself": long(sh("kill -SEGV $$"), wait, "was ended by a signal (segmentation fault)"),
		"a program that is killed":    long(sh("sleep 600"), func(p *Process) { p.Kill(); p.Kill() }, "was ended"),
		"a program without a folder": long(Program{Argv: []string{"/bin/true"}, Dir: "/nowhere"}, wait,
			"cannot be started: no such file or directory"),
		"a program that is not there": refused(Program{Argv: []string{"/nowhere"}},
			"the program /nowhere cannot be run"),
		"a program that is not a name": refused(Program{}, "it has no program to run"),
	} {
		does() // what is opened only once
		before := files()
		does()
		for end := time.Now().Add(10 * time.Second); files() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%s leaves %d files open", name, files()-before)
				break
			}
		}
	}
}
