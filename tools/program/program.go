// Package program makes tools of programs: each call runs one, gives it the
// arguments as JSON on its standard input, and takes what it writes to its
// standard output for the result.
//
// What a call starts ends with the call. The program and everything it has
// started, its family, is killed when the program ends, when the call's time is
// up and when the call is cancelled, also what has gone to the background, into
// a session of its own (setsid) or has been orphaned on purpose (a double
// fork). The same happens soon after the worker itself was killed; and should
// the worker be stopped, the program still ends at the end of its time.
//
// On Linux this is the work of a keeper, a small process between worker and
// program: see keeper_linux.go. It needs no rights. It is the program that
// imports this package, run again; nothing of its main runs. What it cannot do:
//
//   - kill what runs under another user (a program that is setuid), or is stuck
//     in the kernel (a dead network file system). The call is answered all the
//     same.
//   - find what another service starts on the program's behalf (cron, at,
//     systemd-run, a container engine): that was never of the family.
//   - hold against a program that means harm: it runs as the worker's user, and
//     can kill the keeper, and the worker. When only the keeper is killed, the
//     worker looks for the family by a mark in its environment, which a process
//     can take out of its own.
//
// On other Unix systems the program gets a process group of its own and that is
// killed: what leaves the group lives on, and so does everything when the
// worker is killed. Elsewhere the program alone is killed.
//
// The package writes to no log and holds no state; its tools may be called by
// several goroutines at once.
package program

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// A Program says what is run for a call.
type Program struct {
	// Argv is the program and its arguments; no shell reads them. A program
	// without a slash is looked up in the worker's PATH, a relative one starts
	// at the worker's folder, not at Dir.
	Argv []string

	// Dir is the folder it runs in. Empty: the worker's.
	Dir string

	// Env is its environment, as NAME=VALUE, and all of it but the variables of
	// the call: nothing of the worker's is passed on, PATH and HOME included.
	// Names that begin with TURNKEEPER_ are the call's own.
	Env []string

	// MaxOutput is how many bytes of its output are kept. What it writes past
	// that is read and dropped, so that it can finish what it does, and the
	// model is told that the result is cut. 0: turnkeeper.MaxOutputBytes, which
	// is also the most.
	MaxOutput int

	// MediaType is that of its output. Empty: text/plain. Output of a type that
	// is not text is kept as binary content.
	MediaType string
}

// Variables of a call, beside Program.Env.
const (
	EnvAgent        = "TURNKEEPER_AGENT"
	EnvConversation = "TURNKEEPER_CONVERSATION"
	EnvTurn         = "TURNKEEPER_TURN_ID"
	EnvCall         = "TURNKEEPER_CALL" // unique in the turn
	// EnvIdempotencyKey is tools.Call.IdempotencyKey: the same for each start of
	// this call, and for no other.
	EnvIdempotencyKey = "TURNKEEPER_IDEMPOTENCY_KEY"
	// EnvFamily marks the processes of one run; its value cannot be guessed.
	EnvFamily = "TURNKEEPER_PROGRAM_FAMILY"
)

// Bounds of what is told of a program that failed.
const (
	maxStderr = 4000 // bytes, the last ones
	maxSaid   = 1000 // bytes of its output, the first ones, when it wrote no error
)

// Tool makes a tool of a program. Where spec.Parameters is empty the tool takes
// no arguments; a zero effect is turnkeeper.EffectOnce.
//
// The program gets the call's arguments, one JSON object and a line break, on
// its standard input; it need not read them. Ending with exit code 0 is a
// success. Any other code, or a signal, is a failure, which shows the model the
// last 4000 bytes of its standard error; on success these are dropped.
//
// What is wrong with p is reported when the tool is registered; a program that
// cannot be found or started, when it is called.
func Tool(spec tools.Spec, p Program) tools.Tool {
	spec.Effect = cmp.Or(spec.Effect, turnkeeper.EffectOnce)
	if len(spec.Parameters) == 0 {
		spec.Parameters = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	p.MaxOutput = cmp.Or(p.MaxOutput, turnkeeper.MaxOutputBytes)
	return &tool{spec: spec, program: p}
}

type tool struct {
	spec    tools.Spec
	program Program
}

func (t *tool) Spec() tools.Spec { return t.spec }

// Check says what is wrong with the tool's Program.
func (t *tool) Check() error { return t.program.check() }

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

func (p Program) check() error {
	switch {
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return errors.New("it has no program to run")
	case strings.Contains(strings.Join(p.Argv, "")+p.Dir+strings.Join(p.Env, ""), "\x00"):
		return errors.New("its program, folder or environment holds a NUL character")
	case p.MaxOutput < 0 || p.MaxOutput > turnkeeper.MaxOutputBytes:
		return fmt.Errorf("its output is bounded at %d bytes; it must be 1 to %d, or 0", p.MaxOutput, turnkeeper.MaxOutputBytes)
	}
	for _, v := range p.Env {
		name, _, _ := strings.Cut(v, "=")
		if !variable.MatchString(v) {
			return fmt.Errorf("its environment has %q; a variable is written NAME=VALUE", name)
		}
		if strings.HasPrefix(name, "TURNKEEPER_") {
			return fmt.Errorf("its environment sets %s; names that begin with TURNKEEPER_ are the call's own", name)
		}
	}
	return nil
}

// Run runs the program once.
func (t *tool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	run, err := t.program.forCall(call)
	if err != nil {
		return tools.Result{}, err
	}
	stdout, stderr := &head{room: t.program.MaxOutput}, &tail{room: maxStderr}
	ended, err := run.run(ctx, stdout, stderr)
	if err != nil {
		return tools.Result{}, err
	}
	if ended.failed() {
		return tools.Result{Text: t.complaint(ended, stdout, stderr), IsError: true}, nil
	}
	return t.result(stdout), nil
}

func (t *tool) result(stdout *head) tools.Result {
	result := tools.Result{MediaType: t.program.MediaType, Incomplete: stdout.dropped > 0, RawBytes: stdout.size()}
	if tools.IsText(t.program.MediaType) {
		result.Text = string(stdout.kept)
	} else {
		result.Bytes = append([]byte{}, stdout.kept...)
	}
	return result
}

// complaint is what the model is shown of a program that failed.
func (t *tool) complaint(e ending, stdout *head, stderr *tail) string {
	text := fmt.Sprintf("tool error: the program of '%s' %s", t.spec.Name, e)
	if said := strings.TrimSpace(stderr.String()); said != "" {
		return text + ". It complained:\n" + said
	}
	if said := strings.TrimSpace(string(stdout.kept[:min(len(stdout.kept), maxSaid)])); said != "" && tools.IsText(t.program.MediaType) {
		return text + ", without a complaint. Its output begins:\n" + said
	}
	return text + ", without a word."
}

// An execution is one run of a program.
type execution struct {
	path  string // of the program, as the system is asked for it
	argv  []string
	dir   string
	env   []string
	stdin []byte
	mark  string // value of EnvFamily
}

func (p Program) forCall(call tools.Call) (execution, error) {
	path, err := Find(p.Argv[0])
	if err != nil {
		return execution{}, err
	}
	mark := rand.Text()
	env := append([]string{}, p.Env...)
	return execution{
		path: path, argv: p.Argv, dir: p.Dir, mark: mark, stdin: append(append([]byte{}, call.Arguments...), '\n'),
		env: append(env,
			EnvAgent+"="+call.Agent, EnvConversation+"="+call.Conversation,
			EnvTurn+"="+fmt.Sprint(int64(call.TurnID)), EnvCall+"="+call.Key.String(),
			EnvIdempotencyKey+"="+call.IdempotencyKey, EnvFamily+"="+mark),
	}, nil
}

// Find is where a program is, as a Tool would run it: an absolute path, or the
// error that a call would fail with.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("the program %s cannot be run: %w", name, err)
	}
	return path, nil
}

// An ending is how a program ended by itself.
type ending struct {
	Code   int    // its exit code
	Signal string // what ended it in place of that; empty: nothing
}

func (e ending) failed() bool { return e.Code != 0 || e.Signal != "" }

func (e ending) String() string {
	if e.Signal != "" {
		return "was ended by a signal (" + e.Signal + ")"
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}

// killTime is how long a family may take to die before its call is answered
// without waiting for that. Together with it, a call ends within a second of
// its time. Only tests set it.
var killTime = 500 * time.Millisecond
