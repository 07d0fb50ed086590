package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/fault"
	"turnkeeper/internal/procguard"
	"turnkeeper/internal/redact"
	"turnkeeper/internal/version"
)

// A Program is one of the commands.
type Program struct {
	command func(*session) *cobra.Command
	reloads bool // SIGHUP means: read the files again
	fault   fault.Hook
}

// WithFaults returns the program with a hook that is called at labelled points
// of its work (see app.FaultPoints). For programs of the tests only.
func (p Program) WithFaults(hook fault.Hook) Program {
	p.fault = hook
	return p
}

// An Environment is what the operating system gives to a program. Unset fields
// are: no arguments, no variables, no input, output that is thrown away.
type Environment struct {
	Args           []string // without the program's name
	Getenv         func(string) (string, bool)
	Variables      []string // the names of those that are set: for warnings of misspelt ones
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Now            func() time.Time // nil: time.Now
	Zone           *time.Location   // of times for people; nil: the machine's
	Reload         <-chan os.Signal // each value makes a worker read its agents again
}

// Main runs the program as this process and returns its exit code. The first
// SIGINT or SIGTERM asks it to end, the second makes it end at once. Before
// anything else it hides the process from the programs that it will start.
func Main(p Program) int {
	if err := procguard.Protect(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "warning: %v\n", err)
	}
	soft, hard, stop := untilSignals()
	defer stop()
	env := Environment{
		Args: os.Args[1:], Getenv: os.LookupEnv, Variables: variables(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if p.reloads {
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		env.Reload = hangups
	}
	return p.Run(soft, hard, env)
}

// variables are the names of the process's variables, sorted.
func variables() []string {
	names := os.Environ()
	for i, entry := range names {
		names[i], _, _ = strings.Cut(entry, "=")
	}
	slices.Sort(names)
	return names
}

// Run runs the program once and returns its exit code. The end of soft asks it
// to end in good order, the end of hard to drop everything.
func (p Program) Run(soft, hard context.Context, env Environment) int {
	s := newSession(hard, env)
	s.fault = p.fault
	root := p.command(s)
	root.SetArgs(append([]string{}, env.Args...)) // nil would mean os.Args
	root.SetIn(s.Stdin)
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	strictCommands(root, env.Args) // after the output is set: cobra's commands take note of it
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		s.began = true
		return s.checkFormat()
	}
	root.SetUsageFunc(s.usage)
	root.Version = version.Long()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(badFlag)
	called, err := root.ExecuteContextC(soft)
	s.report(called, err)
	return exitCode(err, s.began)
}

// A session is one run of a program.
type session struct {
	Environment
	hard   context.Context
	out    *screen
	err    *screen
	flags  flags
	format string // text or json
	began  bool   // the command line was understood

	needsSecrets bool // every secret that the settings name must be there

	masker *redact.Masker
	fault  fault.Hook // nil in production
}

func newSession(hard context.Context, env Environment) *session {
	if env.Getenv == nil {
		env.Getenv = func(string) (string, bool) { return "", false }
	}
	if env.Stdin == nil {
		env.Stdin = &bytes.Reader{}
	}
	if env.Stdout == nil {
		env.Stdout = io.Discard
	}
	if env.Stderr == nil {
		env.Stderr = io.Discard
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	if env.Zone == nil {
		env.Zone = time.Local //nolint:gosmopolitan // for people at this machine
	}
	return &session{
		Environment: env, hard: hard, format: formatText, masker: redact.New(nil),
		out: newScreen(env.Stdout, env.Getenv), err: newScreen(env.Stderr, env.Getenv),
	}
}

// clock tells times by this moment.
func (s *session) clock() clock { return clock{now: s.Now(), zone: s.Zone} }

// The formats of output.
const (
	formatText = "text"
	formatJSON = "json"
)

func (s *session) checkFormat() error {
	if s.format != formatText && s.format != formatJSON {
		return usageError("--output is %q: it must be text or json", s.format)
	}
	return nil
}

func (s *session) json() bool { return s.format == formatJSON }

// report says what went wrong, without secrets and control characters.
func (s *session) report(called *cobra.Command, err error) {
	if err == nil || errors.Is(err, errSilent) || unread(err) {
		return
	}
	text := plain(s.masker.String(err.Error()))
	s.err.line("%s %s", s.err.in(bad, called.Root().Name()+":"), strings.TrimSpace(text))
	if !s.began {
		s.err.line("%s", s.err.in(dim, fmt.Sprintf("Try %q.", called.CommandPath()+" --help")))
	}
}
