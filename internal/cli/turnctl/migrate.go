package turnctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
)

func migrateCommand(s *shell.Session) *cobra.Command {
	var status bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Apply pending migrations to the database", Args: cobra.NoArgs,
		Long: `Apply pending migrations, including River's. It is safe while workers run, and when
several processes migrate at once. Without DATABASE_URL it creates the private
database if there is none.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if status {
				return migrationStatus(s, cmd)
			}
			return s.Database(cmd.Context(), true, func(_ *config.Config, db *database.Database) error {
				applied, err := setup.Migrate(cmd.Context(), db)
				if err != nil {
					return err
				}
				for i := range applied {
					applied[i].Applied = true
				}
				return s.Print(views.All(applied, viewMigration), func() { showApplied(s.Out, applied) })
			})
		},
	}
	cmd.Flags().BoolVar(&status, "status", false, "only list the migrations and whether they are applied")
	return cmd
}

func showApplied(s *term.Screen, applied []storage.Migration) {
	for _, m := range applied {
		s.Line("%s applied %s", s.Paint(term.Good, "✓"), m)
	}
	if len(applied) == 0 {
		s.Line("the schema is up to date")
	}
}

func migrationStatus(s *shell.Session, cmd *cobra.Command) error {
	return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
		all, err := db.Store.Migrations(cmd.Context())
		if err != nil {
			return err
		}
		return s.Print(views.All(all, viewMigration), func() { showMigrations(s.Out, all) })
	})
}

func showMigrations(s *term.Screen, all []storage.Migration) {
	t := term.NewTable(">VERSION", "NAME", "STATE")
	for _, m := range all {
		state := term.Cell{Text: "pending", Tone: term.Warned}
		if m.Applied {
			state = term.Cell{Text: "applied", Tone: term.Good}
		}
		if m.Newer {
			state = term.Cell{Text: "newer than this program", Tone: term.Warned}
		}
		t.Add(fmt.Sprintf("%03d", m.Version), m.Name, state)
	}
	t.Print(s)
}

type migrationView struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
	Newer   bool   `json:"newer"` // unknown to this program

	OldestProgram int `json:"oldest_program"`
}

func viewMigration(m storage.Migration) migrationView { return migrationView(m) }
