package cli

import "github.com/spf13/cobra"

// Groups are the paths of a program's commands that have commands below them, cobra's own included.
func Groups(p Program) (paths []string) {
	root := p.command(newSession(nil, Environment{})) //nolint:staticcheck // nothing runs
	strictCommands(root, nil)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.HasSubCommands() {
			paths = append(paths, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return paths
}
