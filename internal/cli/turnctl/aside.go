package turnctl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func setAsideCommand(s *shell.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set-aside", Short: "List rows that failed and are set aside", Args: cobra.NoArgs,
		Long: `List the rows that the scheduler, a purge or a webhook could not read or write.
Each is left out until its next try, so that it stops no others: after a minute,
then after twice as long each time, at most an hour. A row that no longer fails goes
on by itself. A step of the scheduler's tick that fails as a whole, and the tick
itself, are listed too; they are tried again each second.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *operate.Store) ([]granting.Aside, error) {
				return store.Aside(ctx)
			}
			return list(s, cmd, look, views.OfAside, showAside, "nothing is set aside")
		},
	}
	cmd.AddCommand(retryAsideCommand(s))
	return cmd
}

func showAside(s *term.Screen, c term.Clock, rows []granting.Aside) {
	t := term.NewTable("KIND", "ID", "SINCE", ">FAILURES", "NEXT TRY", "SQLSTATE", "ERROR")
	for _, a := range rows {
		t.Add(string(a.Kind), term.OrDash(a.ID), c.At(a.Since), fmt.Sprint(a.Failures), c.At(a.NextTry),
			term.OrDash(a.Code), term.OneLine(a.Error, term.PreviewColumns))
	}
	t.Print(s)
}

func retryAsideCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "retry [KIND ID]", Short: "Try rows that are set aside at once", Args: cobra.ArbitraryArgs,
		Example: `  turnctl set-aside retry
  turnctl set-aside retry turn 12`,
		RunE: func(cmd *cobra.Command, args []string) error {
			one, err := subjectOf(args)
			if err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				n, err := db.Store.RetryAside(cmd.Context(), one)
				if errors.Is(err, turnkeeper.ErrNotFound) {
					return shell.NotFound(`%s %s is not set aside: "turnctl set-aside" lists what is`, one.Kind, one.ID)
				}
				if err != nil {
					return err
				}
				return s.Print(map[string]int{"retried": n}, func() {
					s.Out.Line("%s", term.Plural(n, "row")+" will be tried at once")
				})
			})
		},
	}
}

// subjectOf reads KIND ID. No arguments mean all.
func subjectOf(args []string) (granting.Subject, error) {
	if len(args) == 0 {
		return granting.Subject{}, nil
	}
	if len(args) != 2 || !slices.Contains(granting.SubjectKinds, granting.SubjectKind(args[0])) {
		return granting.Subject{},
			shell.Misused(`give KIND and ID as "turnctl set-aside" lists them, or nothing for all`)
	}
	return granting.Subject{Kind: granting.SubjectKind(args[0]), ID: args[1]}, nil
}
