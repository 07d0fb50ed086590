package shell

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groupAnnotation holds the heading under which --help lists a flag.
const groupAnnotation = "turnkeeper_group"

// usage prints the usage line, examples, subcommands, the command's flags, and
// the flags of settings under their headings.
func (s *Session) usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", UseLine(cmd))
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nCommands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	for _, group := range flagGroups(cmd) {
		text := strings.TrimRight(group.flags.FlagUsagesWrapped(s.Out.Readable()), "\n")
		fmt.Fprintf(w, "\n%s:\n%s\n", group.name, text)
	}
	return nil
}

// ExactArgs accepts n arguments; its error is the usage line.
func ExactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("usage: %s", UseLine(cmd))
		}
		return nil
	}
}

// SomeArgs accepts one argument or more.
func SomeArgs(cmd *cobra.Command, args []string) error {
	return ExactArgs(max(len(args), 1))(cmd, args)
}

// badFlag rewrites the error of an invalid flag value to say what is valid.
func badFlag(_ *cobra.Command, err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok || errors.Is(err, errVersion) {
		return err
	}
	accepted := ""
	switch invalid.GetFlag().Value.Type() {
	case "int", "int64":
		accepted = "a whole number"
	case "duration":
		accepted = "a duration such as 90s, 2m or 1h30m (a bare number is seconds)"
	case "bool", "boolfunc":
		accepted = "true or false"
	default:
		return err
	}
	return fmt.Errorf("--%s is %q: it must be %s", invalid.GetFlag().Name, invalid.GetValue(), accepted)
}

// UseLine returns the usage line of a command.
func UseLine(cmd *cobra.Command) string {
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() && !cmd.Runnable() {
		line = cmd.CommandPath() + " COMMAND [flags]"
	}
	return line
}

type flagGroup struct {
	name  string
	flags *pflag.FlagSet
}

// flagGroups groups a command's flags by heading, its own first.
func flagGroups(cmd *cobra.Command) (groups []flagGroup) {
	find := func(name string) *pflag.FlagSet {
		for _, g := range groups {
			if g.name == name {
				return g.flags
			}
		}
		set := pflag.NewFlagSet(name, pflag.ContinueOnError)
		set.SortFlags = false
		groups = append(groups, flagGroup{name, set})
		return set
	}
	place := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "Flags"
		if group := f.Annotations[groupAnnotation]; len(group) > 0 {
			name = group[0]
		}
		find(name).AddFlag(f)
	}
	for _, all := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
		all.SortFlags = false
		all.VisitAll(place)
	}
	for i, g := range groups {
		if g.name == "Flags" {
			return append([]flagGroup{g}, append(groups[:i:i], groups[i+1:]...)...)
		}
	}
	return groups
}

// AtMostOneArg accepts no argument or one.
func AtMostOneArg(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s takes at most one argument, not %d", cmd.Name(), len(args))
	}
	return nil
}

// OneOf checks that a flag's value is one of words, or empty.
func OneOf(flag, word string, words []string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	return Misused("%s is %q: it must be one of %s", flag, word, strings.Join(words, ", "))
}
