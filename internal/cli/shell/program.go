package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/procguard"
	"turnkeeper/internal/redact"
	"turnkeeper/internal/version"
)

// A Program is one of the commands.
type Program struct {
	Command func(*Session) *cobra.Command
	Reloads bool // SIGHUP reloads the agents' files
	fault   fault.Hook
}

// WithFaults returns the program with a hook that is called at the points of
// app.FaultPoints. For tests only.
func (p Program) WithFaults(hook fault.Hook) Program {
	p.fault = hook
	return p
}

// An Environment is what the operating system gives to a program. The zero
// value has no arguments, variables or input, and discards output.
type Environment struct {
	Args           []string // without the program's name
	Getenv         func(string) (string, bool)
	Variables      []string // names of the set variables, for warnings about misspelt ones
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Now            func() time.Time // nil: time.Now
	Zone           *time.Location   // for times in text output; nil: the machine's
	Reload         <-chan os.Signal // each value makes a worker reload its agents
}

// Main runs the program as this process and returns its exit code. The first
// SIGINT or SIGTERM asks it to stop, the second stops it at once. It first
// protects the process from the programs that it will start.
func Main(p Program) int {
	hangups := make(chan os.Signal, 1)
	if p.Reloads {
		signal.Notify(hangups, syscall.SIGHUP) // first: until then, the signal ends the process
	}
	soft, hard, stop := untilSignals()
	defer stop()
	if err := procguard.Protect(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "warning: %v\n", err)
	}
	env := Environment{
		Args: os.Args[1:], Getenv: os.LookupEnv, Variables: variables(), Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr,
	}
	if p.Reloads {
		env.Reload = hangups
	}
	return p.Run(soft, hard, env)
}

// variables returns the sorted names of the process's variables.
func variables() []string {
	names := os.Environ()
	for i, entry := range names {
		names[i], _, _ = strings.Cut(entry, "=")
	}
	slices.Sort(names)
	return names
}

// Tree returns the program's commands and flags, for documentation: none can be run.
func (p Program) Tree() *cobra.Command {
	return p.Command(newSession(nil, Environment{Zone: time.UTC})) //nolint:staticcheck // nothing runs
}

// Run runs the program once and returns its exit code. When soft ends it stops
// in order; when hard ends it stops at once.
func (p Program) Run(soft, hard context.Context, env Environment) int {
	s := newSession(hard, env)
	s.Fault = p.fault
	root := p.Command(s)
	root.SetArgs(append([]string{}, env.Args...)) // nil would mean os.Args
	root.SetIn(s.Stdin)
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	strictCommands(root, env.Args) // after the output is set: cobra's completion command copies it
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		s.began = true
		return s.checkFormat()
	}
	root.SetUsageFunc(s.usage)
	addVersion(root)
	root.SetFlagErrorFunc(badFlag)
	called, err := root.ExecuteContextC(soft)
	if errors.Is(err, errVersion) {
		_, err = fmt.Fprintln(s.Stdout, root.Name(), version.Long())
	}
	s.report(called, err)
	return exitCode(err, s.began)
}

// A Session is one run of a program.
type Session struct {
	Environment
	Hard   context.Context
	Out    *term.Screen
	Err    *term.Screen
	flags  flags
	Format string // text or json
	began  bool   // the command line was understood

	NeedsSecrets bool // LoadConfig fails if a secret named in the settings is missing

	Masker *redact.Masker
	Fault  fault.Hook // nil in production
}

func newSession(hard context.Context, env Environment) *Session {
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
		env.Zone = time.Local //nolint:gosmopolitan // for users of this machine
	}
	return &Session{
		Environment: env, Hard: hard, Format: FormatText, Masker: redact.New(nil),
		Out: term.NewScreen(env.Stdout, env.Getenv), Err: term.NewScreen(env.Stderr, env.Getenv),
	}
}

// Clock formats times relative to now.
func (s *Session) Clock() term.Clock { return term.Clock{Now: s.Now(), Zone: s.Zone} }

// The formats of output.
const (
	FormatText = "text"
	FormatJSON = "json"
)

func (s *Session) checkFormat() error {
	if s.Format != FormatText && s.Format != FormatJSON {
		return Misused("--output is %q: it must be text or json", s.Format)
	}
	return nil
}

// JSON reports whether -o json was given.
func (s *Session) JSON() bool { return s.Format == FormatJSON }

// report prints the error, without secrets and control characters.
func (s *Session) report(called *cobra.Command, err error) {
	if err == nil || errors.Is(err, errSilent) || unread(err) {
		return
	}
	text := term.Plain(s.Masker.String(err.Error()))
	s.Err.Line("%s %s", s.Err.Paint(term.Bad, called.Root().Name()+":"), strings.TrimSpace(text))
	if !s.began {
		s.Err.Line("%s", s.Err.Paint(term.Dim, fmt.Sprintf("Try %q.", called.CommandPath()+" --help")))
	}
}

// errVersion ends the parsing of flags at --version.
var errVersion = errors.New("version requested")

// addVersion adds the flag --version. Cobra's own flag uses text/template, which makes the linker keep every method of
// every type: the program would be twice as large.
func addVersion(root *cobra.Command) {
	root.InitDefaultHelpFlag() // before --version in the help
	shorthand := "v"
	if root.Flags().ShorthandLookup(shorthand) != nil {
		shorthand = ""
	}
	root.Flags().BoolFuncP("version", shorthand, "version for "+root.Name(), func(text string) error {
		on, err := strconv.ParseBool(text)
		if on {
			err = errVersion
		}
		return err
	})
}
