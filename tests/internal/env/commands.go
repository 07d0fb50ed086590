package env

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
)

// A Result is the output and exit code of a program.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a program until it ends.
func (e *Env) Run(stdin, program string, args ...string) Result {
	e.T.Helper()
	cmd := exec.Command(Binary(e.T, program), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = e.Dir, e.Environ(), strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		e.T.Fatal(err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// needFolder lists the commands of turnctl that need the working folder, because they use files of
// agents or files named in the settings.
var needFolder = []string{"agents", "mcp", "doctor", "migrate"}

// inProcess runs a program as Run does, but in this process, because starting a process takes longer
// than most commands. Commands that need the working folder or use a private database still run as a
// process. Tests of the programs themselves use Run.
func (e *Env) inProcess(stdin, program string, args ...string) Result {
	e.T.Helper()
	_, shared := e.Vars["DATABASE_URL"]
	settings, err := os.ReadFile(filepath.Join(e.Dir, "turnkeeper.yaml"))
	needsFolder := slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(needFolder, arg) })
	if !shared || err != nil || bytes.Contains(settings, []byte("file: ")) || needsFolder {
		return e.Run(stdin, program, args...)
	}
	vars := maps.Clone(e.Vars)
	vars["TURNKEEPER_CONFIG"] = cmp.Or(vars["TURNKEEPER_CONFIG"], filepath.Join(e.Dir, "turnkeeper.yaml"))
	var out, errs bytes.Buffer
	ctx := context.Background()
	code := map[string]shell.Program{"turnctl": turnctl.Program(), "enqueue": enqueue.Program()}[program].Run(ctx, ctx,
		shell.Environment{
			Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Zone: time.UTC,
			Getenv: func(name string) (string, bool) { value, set := vars[name]; return value, set },
		})
	return Result{out.String(), errs.String(), code}
}

// direct reports whether the programs connect to the database as the test does: not through a proxy, and not as
// another user, for example.
func direct(e *Env) bool { return e.store != nil && e.Vars["DATABASE_URL"] == e.DatabaseURL }

// Enqueue sends a message and returns its id. With flags, or if the programs connect to the database differently from
// the test, it uses the program enqueue, and else the SQL function, which takes far less CPU time. A test that needs
// what only the program does, such as masking secrets, calls EnqueueByProgram.
func (e *Env) Enqueue(agent, body string, flags ...string) int64 {
	e.T.Helper()
	if len(flags) == 0 && direct(e) {
		return e.Send(agent, body)
	}
	return EnqueueByProgram(e, agent, body, flags...)
}

// EnqueueByProgram sends a message with the program enqueue and returns its id.
func EnqueueByProgram(e *Env, agent, body string, flags ...string) int64 {
	e.T.Helper()
	args := append([]string{"--agent", agent, "--json"}, flags...)
	r := e.inProcess(body, "enqueue", append(args, "-")...)
	var accepted struct {
		MessageID int64 `json:"message_id"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &accepted); err != nil || r.Code != 0 || accepted.MessageID == 0 {
		e.T.Fatalf("enqueue exited with %d, %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	return accepted.MessageID
}

// Send sends a message with the documented SQL function and returns its id.
func (e *Env) Send(agent, body string) int64 {
	e.T.Helper()
	return Query[int64](e, "select turnkeeper.enqueue($1, $2)", agent, body)
}

// Turnctl runs turnctl, in this process where possible.
func (e *Env) Turnctl(args ...string) Result {
	e.T.Helper()
	return e.inProcess("", "turnctl", args...)
}

// Turnctl runs turnctl -o json and decodes its output.
func Turnctl[V any](e *Env, args ...string) V {
	e.T.Helper()
	r := e.Turnctl(append([]string{"-o", "json"}, args...)...)
	if r.Code != 0 {
		e.T.Fatalf("turnctl %s exited with %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	var v V
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
		e.T.Fatalf("turnctl %s printed invalid JSON: %v\n%s", strings.Join(args, " "), err, r.Stdout)
	}
	return v
}
