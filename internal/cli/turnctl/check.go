package turnctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// promiseView is the JSON output for a promise.
type promiseView struct {
	Promise string   `json:"promise"`
	Holds   bool     `json:"holds"`
	Broken  []string `json:"broken"` // violations, at most 20
	More    bool     `json:"more"`   // there are more
}

func checkCommand(s *shell.Session) *cobra.Command {
	var atRest bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check that every promise holds in this database", Args: cobra.NoArgs,
		Long: `Check Turnkeeper's promises against the rows of the database: one reply per
message, no call with effect once started twice, no overlapping leases, and so
on. It reads all rows in one snapshot, rebuilds the newest requests, writes
nothing, and may run while workers run. The exit code is 1 if any promise is broken.`,
		Example: `  turnctl check
  turnctl check --at-rest         when no worker runs and no turn should be open`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				promises, err := db.Store.Check(cmd.Context(), atRest)
				if err != nil {
					return err
				}
				requests, err := setup.CheckRequests(cmd.Context(), db.Store)
				if err != nil {
					return err
				}
				return printPromises(s, append(promises, requests))
			})
		},
	}
	cmd.Flags().BoolVar(&atRest, "at-rest", false, "also check that nothing is open")
	return cmd
}

func printPromises(s *shell.Session, promises []operate.Promise) error {
	broken := 0
	for _, p := range promises {
		if len(p.Broken) > 0 {
			broken++
		}
	}
	if err := s.Print(views.All(promises, viewPromise), func() { showPromises(s.Out, promises, broken) }); err != nil {
		return err
	}
	if broken > 0 {
		return shell.Silent(shell.ExitFailure)
	}
	return nil
}

func viewPromise(p operate.Promise) promiseView {
	return promiseView{Promise: p.Text, Holds: len(p.Broken) == 0, Broken: append([]string{},
		p.Broken...), More: p.More}
}

func showPromises(s *term.Screen, promises []operate.Promise, broken int) {
	for _, p := range promises {
		if len(p.Broken) == 0 {
			s.Line("%s  %s", s.Paint(term.Good, "holds "), p.Text)
			continue
		}
		s.Line("%s  %s", s.Paint(term.Bad, "BROKEN"), p.Text)
		places := strings.Join(p.Broken, "\n        ")
		if p.More {
			places += "\n        and more"
		}
		s.Line("        %s", places)
	}
	if broken == 0 {
		s.Line("all %d promises hold", len(promises))
		return
	}
	s.Line("%s",
		s.Paint(term.Bad,
			fmt.Sprintf("%d of %d promises are broken: stop the workers, keep the database as it is, and report it",
				broken, len(promises))))
}
