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

// A started is what init wrote.
type started struct {
	Written []string `json:"written"`
	Next    []string `json:"next"` // commands
}

func initCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Write settings and a first agent into this folder", Args: cobra.NoArgs,
		Long: `Write turnkeeper.yaml, in which every setting is a comment, and agents/helper.md, a
first agent, into the folder it is started in. It needs no database, and says
what to type next.

It never overwrites: if one of the files is there, it writes nothing and ends with
exit code 6.`,
		Example: `  mkdir shop && cd shop && turnctl init`,
		RunE: func(*cobra.Command, []string) error {
			agent := filepath.Join("agents", "helper.md")
			if err := writeNew([]newFile{{config.DefaultFile, starterConfig}, {agent, starterAgent}}); err != nil {
				return err
			}
			done := started{[]string{config.DefaultFile, agent}, []string{
				shell.Command("turnctl") + " agents check", shell.Command("worker"), shell.Command("enqueue") + ` --agent helper --wait "What time is it?"`,
			}}
			return s.Print(done, func() {
				s.Out.Line("wrote %s and %s", done.Written[0], done.Written[1])
				s.Out.Line("")
				s.Out.Line("%-50s %s", done.Next[0], s.Out.Paint(term.Dim, "is all well?"))
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

// writeNew writes all files or none. One that is there is never touched.
func writeNew(files []newFile) (err error) {
	for _, f := range files { // the common case, before anything is written
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
	return fmt.Errorf("%s is there already: nothing was written; start in another folder, or move the file away", path)
}
