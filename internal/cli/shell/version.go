package shell

import (
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/version"
)

// VersionCommand returns the command version, which prints what --version prints.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, its commit and its date",
		Long:  "version prints the source version of the program, like --version.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", cmd.Root().Name(), version.Long())
			return err
		},
	}
}
