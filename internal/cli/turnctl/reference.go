package turnctl

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
)

//go:generate go -C ../../../dev run ./refgen/turnctl

const referenceHead = `# turnctl

<!-- Written by make generate from the commands' --help. -->

` + "`turnctl COMMAND --help`" + ` prints the same. Text is for people; ` + "`-o json`" + ` is for programs.

## Completion in the shell

` + "```sh" + `
source <(turnctl completion bash)               # bash, this session
turnctl completion zsh > "${fpath[1]}/_turnctl" # zsh
turnctl completion fish > ~/.config/fish/completions/turnctl.fish
` + "```" + `

` + "`turnctl completion bash --help`" + ` says how to install it permanently. Completion includes ids and names from the database:
turns, messages, agents, conversations, schedules, webhooks, tokens, tools. ` + "`enqueue --completion bash`" + ` prints the script of enqueue.
`

// Reference returns docs/turnctl.md, made from the --help of all commands.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	var write func(*cobra.Command)
	write = func(cmd *cobra.Command) {
		b.WriteString(referenceOf(cmd))
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				write(sub)
			}
		}
	}
	write(Program().Tree())
	return b.String()
}

// referenceColumns is the width of the flags' help.
const referenceColumns = 100

// referenceOf returns the section of a command. Only the root's section lists the flags of settings.
func referenceOf(cmd *cobra.Command) string {
	var text bytes.Buffer
	if cmd.Long != "" {
		fmt.Fprintf(&text, "%s\n\n", cmd.Long)
	}
	fmt.Fprintf(&text, "Usage:\n  %s\n", shell.UseLine(cmd))
	if cmd.HasExample() {
		fmt.Fprintf(&text, "\nExamples:\n%s\n", cmd.Example)
	}
	flags := cmd.LocalNonPersistentFlags()
	if !cmd.HasParent() {
		flags = cmd.PersistentFlags()
	}
	flags.SortFlags = false
	if usage := strings.TrimRight(flags.FlagUsagesWrapped(referenceColumns), "\n"); usage != "" {
		fmt.Fprintf(&text, "\nFlags:\n%s\n", usage)
	}
	return fmt.Sprintf("\n## %s\n\n%s.\n\n```text\n%s```\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."),
		text.String())
}
