//go:build unix

// Package programtest helps to test code that runs programs. It has a rascal,
// which is a program that misbehaves in every known way, and functions that
// find its live processes. It works on Linux.
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

// Variable is the environment variable that makes a program that calls Main a
// rascal. The children of a rascal have no other variable, so their environment
// does not show whose they are, unless their behaviour keeps it.
const Variable = "RASCAL"

// Main runs a rascal and exits if Variable is set, and else returns. The
// arguments of the process are one of Behaviours and a token. All processes of
// the rascal have the token as an argument, so tests can find them.
func Main() {
	if os.Getenv(Variable) == "" {
		return
	}
	rascal{token: os.Args[2]}.be(os.Args[1])
	os.Exit(0)
}

// Behaviours returns the behaviours of a rascal, sorted.
func Behaviours() []string { return slices.Sorted(maps.Keys(behaviours)) }

type rascal struct{ token string }

var behaviours map[string]func(rascal)

func init() {
	behaviours = map[string]func(rascal){
		"hang":         rascal.hang,
		"deaf":         rascal.deaf,
		"fork":         rascal.fork,
		"setsid":       rascal.setsid,
		"orphan":       rascal.orphan,
		"orphans":      rascal.orphans,
		"daemon":       rascal.daemon,
		"bomb":         rascal.bomb,
		"patricide":    rascal.patricide,
		"panic":        func(rascal) { panic("nothing works") },
		"endless":      func(rascal) { write(os.Stdout, -1) },
		"complain":     func(rascal) { write(os.Stderr, -1) },
		"gigabyte":     func(rascal) { write(os.Stdout, 1<<30) },
		"nul":          func(rascal) { fmt.Fprint(os.Stdout, "a\x00b\x00") },
		"broken utf-8": func(rascal) { fmt.Fprint(os.Stdout, "a\xff\xfeb\xc3") },
		"surrogates":   func(rascal) { fmt.Fprint(os.Stdout, `{"a":"\ud800"}`, "\xed\xa0\x80.") },
		"deep": func(rascal) {
			fmt.Fprint(os.Stdout, strings.Repeat("[", 10_000), strings.Repeat("]", 10_000))
		},
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

// hang reads its input and never ends.
func (r rascal) hang() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	<-time.After(time.Hour)
}

// deaf ignores all signals that can be ignored, and does not read its input.
func (r rascal) deaf() {
	ignoreSignals()
	<-time.After(time.Hour)
}

func (r rascal) fork() {
	r.spawn("hang", nil)
	r.spawn("hang", nil)
	r.hang()
}

// setsid starts a child in another session.
func (r rascal) setsid() {
	r.spawn("hang", newSession())
	r.hang()
}

// orphan starts a grandchild in another session, whose parent has ended.
func (r rascal) orphan() {
	_ = r.makeOrphan().Wait()
	r.hang()
}

// notCounted is the prefix of the token of a process that ends at once. With
// it, functions that wait for a number of processes do not count it.
const notCounted = "on the way: "

func (r rascal) makeOrphan() *exec.Cmd {
	return rascal{notCounted + r.token}.spawn("orphan parent", newSession())
}

func (r rascal) haveOrphan() {
	rascal{strings.TrimPrefix(r.token, notCounted)}.spawn("hang", newSession())
}

// daemon leaves an orphan behind and exits with code 0.
func (r rascal) daemon() {
	_ = r.makeOrphan().Wait()
	fmt.Fprintln(os.Stdout, "it runs")
}

// orphans starts five orphans and hangs.
func (r rascal) orphans() {
	for range 5 {
		r.makeOrphan()
	}
	r.hang()
}

// bomb starts 40 children that each run orphans.
func (r rascal) bomb() {
	for range 40 {
		r.spawn("orphans", nil)
	}
	r.hang()
}

// patricide kills its parent, and starts a child that inherits the whole
// environment.
func (r rascal) patricide() {
	child := r.command("hang", newSession())
	child.Env = nil
	start(child)
	_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
	r.hang()
}

// write writes n bytes; if n is negative, it never stops.
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
	cmd.Stdout = os.Stdout // keeps the output open while the child runs
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
