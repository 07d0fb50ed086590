//go:build unix

// Package programtest is for tests of what runs programs: a rascal, a program
// that misbehaves in every known way, and a look at which of its processes are
// alive. It works on Linux.
package programtest

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Variable makes a program that calls Main a rascal. The children of a rascal
// have it, and no other variable: nothing in their environment tells whose they
// are, unless their behaviour says otherwise.
const Variable = "RASCAL"

// Main makes this process a rascal if the environment says so; it does not
// return then. Its arguments are one of Behaviours and a token, which all its
// processes bear, so that they can be found.
func Main() {
	if os.Getenv(Variable) == "" {
		return
	}
	rascal{token: os.Args[2]}.be(os.Args[1])
	os.Exit(0)
}

// Behaviours are all that a rascal can be told to do, sorted.
func Behaviours() []string { return slices.Sorted(maps.Keys(behaviours)) }

type rascal struct{ token string }

var behaviours map[string]func(rascal)

func init() {
	behaviours = map[string]func(rascal){
		"hang":          rascal.hang,
		"deaf":          rascal.deaf,
		"fork":          rascal.fork,
		"setsid":        rascal.setsid,
		"orphan":        rascal.orphan,
		"orphans":       rascal.orphans,
		"daemon":        rascal.daemon,
		"bomb":          rascal.bomb,
		"patricide":     rascal.patricide,
		"panic":         func(rascal) { panic("nothing works") },
		"endless":       func(rascal) { write(os.Stdout, -1) },
		"complain":      func(rascal) { write(os.Stderr, -1) },
		"gigabyte":      func(rascal) { write(os.Stdout, 1<<30) },
		"nul":           func(rascal) { fmt.Fprint(os.Stdout, "a\x00b\x00") },
		"broken utf-8":  func(rascal) { fmt.Fprint(os.Stdout, "a\xff\xfeb\xc3") },
		"surrogates":    func(rascal) { fmt.Fprint(os.Stdout, `{"a":"\ud800"}`, "\xed\xa0\x80.") },
		"deep":          func(rascal) { fmt.Fprint(os.Stdout, strings.Repeat("[", 10_000), strings.Repeat("]", 10_000)) },
		"orphan parent": rascal.haveOrphan,
	}
}

func (r rascal) be(behaviour string) {
	run, ok := behaviours[behaviour]
	if !ok {
		fmt.Fprintf(os.Stderr, "no rascal knows how to %s\n", behaviour)
		os.Exit(2)
	}
	run(r)
}

// hang takes its input and never ends.
func (r rascal) hang() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	<-time.After(time.Hour)
}

// deaf hears no signal that can be ignored, and does not read its input.
func (r rascal) deaf() {
	ignoreSignals()
	<-time.After(time.Hour)
}

func (r rascal) fork() {
	r.spawn("hang", nil)
	r.spawn("hang", nil)
	r.hang()
}

// setsid has a child in a session of its own.
func (r rascal) setsid() {
	r.spawn("hang", newSession())
	r.hang()
}

// orphan has a grandchild in a session of its own, whose parent has ended.
func (r rascal) orphan() {
	_ = r.makeOrphan().Wait()
	r.hang()
}

// notCounted stands before the token of a process that ends at once: whoever
// waits for a number of processes does not mean it.
const notCounted = "on the way: "

func (r rascal) makeOrphan() *exec.Cmd {
	return rascal{notCounted + r.token}.spawn("orphan parent", newSession())
}

func (r rascal) haveOrphan() {
	rascal{strings.TrimPrefix(r.token, notCounted)}.spawn("hang", newSession())
}

// daemon leaves such a one behind and ends well.
func (r rascal) daemon() {
	_ = r.makeOrphan().Wait()
	fmt.Fprintln(os.Stdout, "it runs")
}

// orphans are five of them, and a wait.
func (r rascal) orphans() {
	for range 5 {
		r.makeOrphan()
	}
	r.hang()
}

// bomb has many children that go on to have many.
func (r rascal) bomb() {
	for range 40 {
		r.spawn("orphans", nil)
	}
	r.hang()
}

// patricide kills its parent, and leaves a child behind that keeps the
// environment it was given.
func (r rascal) patricide() {
	child := r.command("hang", newSession())
	child.Env = nil
	start(child)
	_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
	r.hang()
}

// write writes n bytes; less than 0: without end.
func write(to io.Writer, n int) {
	chunk := []byte(strings.Repeat("yes, and on and on.\n", 1<<16))
	for written := 0; n < 0 || written < n; {
		if n >= 0 {
			chunk = chunk[:min(len(chunk), n-written)]
		}
		wrote, err := to.Write(chunk)
		if err != nil {
			os.Exit(1)
		}
		written += wrote
	}
}

func (r rascal) command(behaviour string, attr *syscall.SysProcAttr) *exec.Cmd {
	//nolint:noctx // nothing ends it
	cmd := exec.Command(os.Args[0], behaviour, r.token)
	cmd.Env, cmd.SysProcAttr = []string{Variable + "=yes"}, attr
	cmd.Stdout = os.Stdout // kept open for as long as it lives
	return cmd
}

func (r rascal) spawn(behaviour string, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := r.command(behaviour, attr)
	start(cmd)
	return cmd
}

func start(cmd *exec.Cmd) {
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func ignoreSignals() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
}
