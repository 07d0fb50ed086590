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
	Reloads bool // SIGHUP means: read the files again
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
	if p.Reloads {
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

// Tree is the program's commands with their flags, of which none can be run.
func (p Program) Tree() *cobra.Command {
	return p.Command(newSession(nil, Environment{Zone: time.UTC})) //nolint:staticcheck // nothing runs
}

// Run runs the program once and returns its exit code. The end of soft asks it
// to end in good order, the end of hard to drop everything.
func (p Program) Run(soft, hard context.Context, env Environment) int {
	s := newSession(hard, env)
	s.Fault = p.fault
	root := p.Command(s)
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

	NeedsSecrets bool // every secret that the settings name must be there

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
		env.Zone = time.Local //nolint:gosmopolitan // for people at this machine
	}
	return &Session{
		Environment: env, Hard: hard, Format: FormatText, Masker: redact.New(nil),
		Out: term.NewScreen(env.Stdout, env.Getenv), Err: term.NewScreen(env.Stderr, env.Getenv),
	}
}

// Clock tells times by this moment.
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

// JSON says that the output is for programs.
func (s *Session) JSON() bool { return s.Format == FormatJSON }

// report says what went wrong, without secrets and control characters.
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

// errVersion is how the command line ends at --version.
var errVersion = errors.New("the version is asked for")

// addVersion gives the program the flag --version. Cobra's own prints by a template, and a program that links the
// templates of the standard library links every method of every type as well: twice the program.
func addVersion(root *cobra.Command) {
	root.InitDefaultHelpFlag() // it stands first
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
