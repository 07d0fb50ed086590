package turnctl

import (
	"errors"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
)

// policyCommand returns the command that says where rules are tested: turnctl links no compiler of rules, which would add
// half to its size.
func policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Test rules about tool calls, with the worker's program", Args: cobra.NoArgs, Example: "  turnctl policy test"}
	cmd.AddCommand(&cobra.Command{
		Use: "test", Short: "Say how to test a rule against the journal", DisableFlagParsing: true,
		Long: `Rules are tested by the worker's program, which can compile them:

  worker policy test --since 7d --rule '"private" in labels ? ask : allow'

It takes the same settings of the database as turnctl, and only reads.`,
		Example: "  worker policy test --since 7d",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return shell.Wrong(errors.New(`turnctl cannot compile rules: run "worker policy test" with the same arguments`))
		},
	})
	return cmd
}
