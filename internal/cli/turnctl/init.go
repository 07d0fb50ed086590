package turnctl

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
)

//go:embed starter/turnkeeper.yaml
var starterConfig []byte

//go:embed starter/helper.md
var starterAgent []byte

// A started is the JSON output of init.
type started struct {
	Written []string `json:"written"`
	Next    []string `json:"next"` // commands
}

func initCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Write settings and a first agent into this folder", Args: cobra.NoArgs,
		Long: `Write turnkeeper.yaml, with all settings commented out, and a first agent,
agents/helper.md, into the current folder. It needs no database, and prints the
next commands.

It never overwrites: if one of the files exists, it writes nothing and ends with
exit code 6. It refuses --config: the file is always named turnkeeper.yaml.`,
		Example: `  mkdir shop && cd shop && turnctl init`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The next commands would read another file than the one written here.
			if value, _ := s.Getenv("TURNKEEPER_CONFIG"); cmd.Flags().Changed("config") || value != "" {
				return shell.Misused(
					"init writes %s into the current folder: omit --config, and unset TURNKEEPER_CONFIG",
					config.DefaultFile)
			}
			agent := filepath.Join("agents", "helper.md")
			if err := writeNew([]newFile{{config.DefaultFile, starterConfig}, {agent, starterAgent}}); err != nil {
				return err
			}
			done := started{[]string{config.DefaultFile, agent}, []string{
				shell.Command("turnctl") + " agents check", shell.Command("worker"), shell.Command("enqueue") +
					` --agent helper --wait "What time is it?"`,
			}}
			return s.Print(done, func() {
				s.Out.Line("wrote %s and %s", done.Written[0], done.Written[1])
				s.Out.Line("")
				s.Out.Line("%-50s %s", done.Next[0], s.Out.Paint(term.Dim, "checks the agents"))
				s.Out.Line("%-50s %s", done.Next[1], s.Out.Paint(term.Dim, "stays in the foreground; Ctrl-C ends it"))
				s.Out.Line("%-50s %s", done.Next[2], s.Out.Paint(term.Dim, "from another terminal"))
			})
		},
	}
}

// A newFile is a file to create; an existing one is never overwritten.
type newFile struct {
	path string
	text []byte
}

// writeNew writes all files or none. It never touches an existing file.
func writeNew(files []newFile) (err error) {
	for _, f := range files { // check all before writing any
		if _, err := os.Lstat(f.path); err == nil {
			return shell.Refused(alreadyThere(f.path))
		}
	}
	var written []string
	defer func() {
		if err != nil {
			for _, path := range written {
				_ = os.Remove(path)
			}
		}
	}()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return shell.Refused(alreadyThere(f.path))
		}
		if err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}
		written = append(written, f.path)
		_, err = file.Write(f.text)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}
	}
	return nil
}

func alreadyThere(path string) error {
	return fmt.Errorf("%s already exists: nothing was written; use another folder, or move the file away", path)
}
