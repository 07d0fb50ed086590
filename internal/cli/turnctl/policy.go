package turnctl

import (
	"errors"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
)

// policyCommand returns a command that points to "worker policy test". turnctl does not link the compiler of rules,
// which would make it half again as large.
func policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Point to the command that tests rules about tool calls",
		Args: cobra.NoArgs, Example: "  turnctl policy test"}
	cmd.AddCommand(&cobra.Command{
		Use: "test", Short: "Point to worker policy test", DisableFlagParsing: true,
		Long: `turnctl cannot compile rules. Test them with the worker program:

  worker policy test --since 7d --rule '"private" in labels ? ask : allow'

It uses the same database settings as turnctl, and writes nothing.`,
		Example: "  worker policy test --since 7d",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return shell.Wrong(
				errors.New(`turnctl cannot compile rules: run "worker policy test" with the same arguments`))
		},
	})
	return cmd
}
