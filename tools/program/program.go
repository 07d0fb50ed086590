// Package program makes tools of programs: each call runs a program, with the
// arguments as JSON on its standard input and its standard output as the result.
//
// The program and all processes that it has started are its family. The family is
// killed when the program ends, when the call times out and when the call is
// cancelled, including processes in the background, in another session (setsid)
// or orphaned by a double fork. It is also killed soon after the worker is killed.
// If the worker is stopped (SIGSTOP), the timeout still applies.
//
// On Linux a keeper does this, a small process between worker and program: see
// keeper_linux.go. It needs no privileges. It is the executable that imports this
// package, started again; its main function does not run. The keeper cannot:
//
//   - kill processes of another user (setuid), or processes stuck in the kernel
//     (a dead network file system). The call is answered in any case.
//   - find processes that another service starts for the program (cron, at,
//     systemd-run, a container engine): they do not belong to the family.
//   - resist a malicious program, which runs as the worker's user and can kill
//     the keeper and the worker. If only the keeper is killed, the worker finds
//     the family by a mark in its environment, which a process can remove.
//
// On other Unix systems the program's process group is killed: processes that
// leave the group survive, and all survive if the worker is killed. On other
// systems only the program is killed.
//
// The package logs nothing and holds no state; its tools are safe for concurrent
// use.
package program

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/redact"
	"turnkeeper/tools"
)

// A Program describes the program to run for a call.
type Program struct {
	// Argv is the program and its arguments, without a shell. A program without a
	// slash is looked up in the worker's PATH; a relative path is relative to the
	// worker's folder, not to Dir.
	Argv []string

	// Dir is the folder it runs in. Empty: the worker's.
	Dir string

	// Env is the whole environment, as NAME=VALUE, except for the variables of the
	// call: no variable of the worker is passed on, not even PATH and HOME. Names
	// that begin with TURNKEEPER_ are reserved for the call.
	Env []string

	// MaxOutput is the maximum number of bytes of output to keep. The rest is read and dropped, so the program can
	// finish. The result says that it is cut. 0: turnkeeper.MaxOutputBytes, which is also the maximum.
	MaxOutput int

	// MediaType is the type of the output. Empty: text/plain. Output of a type that
	// is not text is stored as binary content.
	MediaType string
}

// Variables of a call, in addition to Program.Env.
const (
	EnvAgent        = "TURNKEEPER_AGENT"
	EnvUser         = "TURNKEEPER_USER" // empty: no user's
	EnvConversation = "TURNKEEPER_CONVERSATION"
	EnvTurn         = "TURNKEEPER_TURN_ID"
	EnvCall         = "TURNKEEPER_CALL" // unique within the turn
	// EnvIdempotencyKey is tools.Call.IdempotencyKey: the same for each start of
	// this call, and for no other.
	EnvIdempotencyKey = "TURNKEEPER_IDEMPOTENCY_KEY"
	// EnvFamily marks the processes of one run; its value cannot be guessed.
	EnvFamily = "TURNKEEPER_PROGRAM_FAMILY"
)

// Limits of the text for the model about a failed program.
const (
	maxStderr = 4000 // bytes, the last ones
	maxSaid   = 1000 // bytes of its output, the first ones, when it wrote no error
)

// Tool returns a tool that runs a program. If spec.Parameters is empty, the tool
// has no arguments; a zero effect is turnkeeper.EffectOnce.
//
// The program gets the call's arguments, one JSON object and a line break, on
// its standard input; it need not read them. Exit code 0 is a success. Any other
// code, or a signal, is a failure, which shows the model the last 4000 bytes of
// its standard error; on success these are dropped.
//
// Registering the tool reports errors in p; calling it reports a program that
// cannot be found or started.
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

// Check validates the tool's Program.
func (t *tool) Check() error { return t.program.check() }

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

func (p Program) check() error {
	switch {
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return errors.New("it has no program to run")
	case strings.Contains(strings.Join(p.Argv, "")+p.Dir+strings.Join(p.Env, ""), "\x00"):
		return errors.New("its program, folder or environment holds a NUL character")
	case p.MaxOutput < 0 || p.MaxOutput > turnkeeper.MaxOutputBytes:
		return fmt.Errorf("its output is bounded at %d bytes; it must be 1 to %d, or 0", p.MaxOutput,
			turnkeeper.MaxOutputBytes)
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
	stdout, stderr := &head{ctx: ctx, memory: membudget.Of(ctx), room: max(t.program.MaxOutput, maxSaid+redact.Margin)},
		&tail{room: maxStderr + redact.Margin}
	ended, err := run.run(ctx, stdout, stderr)
	if err != nil {
		return tools.Result{}, err
	}
	if ended.failed() {
		return tools.Result{Text: t.complaint(call, ended, stdout, stderr), IsError: true}, nil
	}
	return t.result(stdout), nil
}

func (t *tool) result(stdout *head) tools.Result {
	result := tools.Result{MediaType: t.program.MediaType, Incomplete: stdout.size() > int64(t.program.MaxOutput),
		RawBytes: stdout.size()}
	kept := stdout.kept[:min(len(stdout.kept), t.program.MaxOutput)]
	if tools.IsText(t.program.MediaType) {
		result.Text = string(kept)
	} else {
		result.Bytes = append([]byte{}, kept...)
	}
	return result
}

// complaint returns the text for the model about a failed program.
func (t *tool) complaint(call tools.Call, e exit, stdout *head, stderr *tail) string {
	text := fmt.Sprintf("tool error: the program of '%s' %s", t.spec.Name, e)
	if said := strings.TrimSpace(stderr.end(call, maxStderr)); said != "" {
		return text + ". It complained:\n" + said
	}
	if said := strings.TrimSpace(stdout.start(call, maxSaid)); said != "" && tools.IsText(t.program.MediaType) {
		return text + ", without a complaint. Its output begins:\n" + said
	}
	return text + ", without a word."
}

// An execution is one run of a program.
type execution struct {
	path  string // absolute path of the program
	argv  []string
	dir   string
	env   []string
	stdin []byte
	mark  string // value of EnvFamily
}

// line returns arguments as one line of JSON. Those that a person wrote may have several.
func line(arguments json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, arguments) != nil { // cannot happen: they are checked
		return append(slices.Clone(arguments), '\n')
	}
	return append(b.Bytes(), '\n')
}

func (p Program) forCall(call tools.Call) (execution, error) {
	path, err := Find(p.Argv[0])
	if err != nil {
		return execution{}, err
	}
	mark := rand.Text()
	env := append([]string{}, p.Env...)
	return execution{
		path: path, argv: p.Argv, dir: p.Dir, mark: mark, stdin: line(call.Arguments),
		env: append(env,
			EnvAgent+"="+call.Agent, EnvUser+"="+call.User, EnvConversation+"="+call.Conversation,
			EnvTurn+"="+fmt.Sprint(int64(call.TurnID)), EnvCall+"="+call.Key.String(),
			EnvIdempotencyKey+"="+call.IdempotencyKey, EnvFamily+"="+mark),
	}, nil
}

// Find returns the absolute path of a program as a Tool would run it, or the
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

// An exit says how a program ended by itself.
type exit struct {
	Code   int    // its exit code
	Signal string // the signal that ended it; empty: it exited
}

func (e exit) failed() bool { return e.Code != 0 || e.Signal != "" }

func (e exit) String() string {
	if e.Signal != "" {
		return "was ended by a signal (" + e.Signal + ")"
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}

// killTime is how long a call waits for its family to die before it is answered
// anyway. With it, a call ends within a second of its timeout. Only tests
// change it.
var killTime = 500 * time.Millisecond
