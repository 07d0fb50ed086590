package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
)

func (s *session) migrateCommand() *cobra.Command {
	var status bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the database's tables up to date", Args: cobra.NoArgs,
		Long: `Bring the database's tables, River's included, up to date. It is safe while
workers run, and when several processes do it at once. Without DATABASE_URL the
private database is made if there is none.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if status {
				return s.migrationStatus(cmd)
			}
			return s.database(cmd.Context(), true, func(_ *config.Config, db *app.Database) error {
				applied, err := db.Migrate(cmd.Context())
				if err != nil {
					return err
				}
				for i := range applied {
					applied[i].Applied = true
				}
				return s.print(views.All(applied, viewMigration), func() { showApplied(s.out, applied) })
			})
		},
	}
	cmd.Flags().BoolVar(&status, "status", false, "only list the migrations and which of them the database has")
	return cmd
}

func showApplied(s *screen, applied []storage.Migration) {
	for _, m := range applied {
		s.line("%s applied %s", s.in(good, "✓"), m)
	}
	if len(applied) == 0 {
		s.line("the schema is up to date")
	}
}

func (s *session) migrationStatus(cmd *cobra.Command) error {
	return s.withDatabase(cmd.Context(), func(_ *config.Config, db *app.Database) error {
		all, err := db.Store.Migrations(cmd.Context())
		if err != nil {
			return err
		}
		return s.print(views.All(all, viewMigration), func() { showMigrations(s.out, all) })
	})
}

func showMigrations(s *screen, all []storage.Migration) {
	t := newTable(">VERSION", "NAME", "STATE")
	for _, m := range all {
		state := cell{"pending", warned}
		if m.Applied {
			state = cell{"applied", good}
		}
		if m.Newer {
			state = cell{"newer than this program", warned}
		}
		t.add(fmt.Sprintf("%03d", m.Version), m.Name, state)
	}
	t.print(s)
}

type migrationView struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
	Newer   bool   `json:"newer"` // this program does not know it

	OldestProgram int `json:"oldest_program"`
}

func viewMigration(m storage.Migration) migrationView { return migrationView(m) }
