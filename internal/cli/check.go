package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// promiseView is what programs read of a promise.
type promiseView struct {
	Promise string   `json:"promise"`
	Holds   bool     `json:"holds"`
	Broken  []string `json:"broken"` // where, at most 20
	More    bool     `json:"more"`   // and elsewhere
}

func (s *session) checkCommand() *cobra.Command {
	var atRest bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check that every promise holds in this database", Args: cobra.NoArgs,
		Long: `Check the promises of Turnkeeper against what is in the database: one reply a
message, no call that must not be repeated started twice, no overlap of leases,
and so on. It reads every row, all as of one moment, writes nothing, and may run
while workers run. The exit code is 1 if any promise is broken.`,
		Example: `  turnctl check
  turnctl check --at-rest         when no worker runs and no turn should be open`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withDatabase(cmd.Context(), func(_ *config.Config, db *app.Database) error {
				promises, err := db.Store.Check(cmd.Context(), atRest)
				if err != nil {
					return err
				}
				return s.tellPromises(promises)
			})
		},
	}
	cmd.Flags().BoolVar(&atRest, "at-rest", false, "check too that nothing is left under way")
	return cmd
}

func (s *session) tellPromises(promises []operate.Promise) error {
	broken := 0
	for _, p := range promises {
		if len(p.Broken) > 0 {
			broken++
		}
	}
	if err := s.print(views.All(promises, viewPromise), func() { showPromises(s.out, promises, broken) }); err != nil {
		return err
	}
	if broken > 0 {
		return silent(ExitFailure)
	}
	return nil
}

func viewPromise(p operate.Promise) promiseView {
	return promiseView{Promise: p.Text, Holds: len(p.Broken) == 0, Broken: append([]string{}, p.Broken...), More: p.More}
}

func showPromises(s *screen, promises []operate.Promise, broken int) {
	for _, p := range promises {
		if len(p.Broken) == 0 {
			s.line("%s  %s", s.in(good, "holds "), p.Text)
			continue
		}
		s.line("%s  %s", s.in(bad, "BROKEN"), p.Text)
		places := strings.Join(p.Broken, "\n        ")
		if p.More {
			places += "\n        and more"
		}
		s.line("        %s", places)
	}
	if broken == 0 {
		s.line("all %d promises hold", len(promises))
		return
	}
	s.line("%s", s.in(bad, fmt.Sprintf("%d of %d promises are broken: stop the workers, keep the database as it is, and report it", broken, len(promises))))
}
