package turnctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/storage/operate"
)

type purgedView struct {
	DryRun   bool `json:"dry_run"`
	Messages int  `json:"messages"`
	Turns    int  `json:"turns"`
	Outputs  int  `json:"outputs"`
	Notes    int  `json:"notes"`
	Kept     int  `json:"kept"` // messages that could not be deleted
}

func purgeCommand(s *shell.Session) *cobra.Command {
	var scope operate.PurgeScope
	var user userFlag
	cmd := &cobra.Command{
		Use: "purge", Short: "Delete closed messages and everything that belongs to them", Args: cobra.NoArgs,
		Long: `Delete closed messages with their turns, replies, tool results, events and jobs:
those of --agent, of --user, of one --conversation of an agent, or those closed for
longer than --older-than; several flags select the messages that match all. A
--conversation without --user is the one of no user. Open messages are never deleted, so workers may run. Nor is a message with a reply not yet delivered
to a webhook, unless --undelivered is given. It deletes in batches; you can
interrupt and repeat it. --dry-run only counts.

It deletes the notes of a --user, and of a --conversation without one, because their
keys have the name; all others of the agent only with --notes. It keeps agents, their
definitions and schedules, lanes in use, daily spend, and API tokens that are bound to
a user, which it names. The idempotency key of a deleted message can be used again.

` + shell.ExitHelp,
		Example: `  turnctl purge --older-than 720h --dry-run
  turnctl purge --agent clerk --conversation order-17
  turnctl purge --user anna
  turnctl purge --agent clerk --notes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope.User = user.name
			if err := checkScope(scope, cmd.Flags().Changed("older-than")); err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				if err := registered(cmd.Context(), db.Store, scope.Agent); err != nil {
					return err
				}
				done, err := db.Store.Purge(cmd.Context(), scope)
				if err != nil {
					return err
				}
				if err := tellOfTokens(cmd.Context(), s, db.Store, scope.User); err != nil {
					return err
				}
				err = s.Print(purgedView{scope.Dry, done.Messages, done.Turns, done.Outputs, done.Notes, done.Kept},
					func() { showPurged(s.Out, s.Err, scope.Dry, done) })
				if err == nil && done.Kept > 0 {
					return shell.Silent(shell.ExitFailure)
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&scope.Agent, "agent", "", "of this agent")
	f.Var(&user, "user", "of this user")
	f.StringVar(&scope.Conversation, "conversation", "", "of this conversation of --agent and --user")
	shell.DurationFlag(f, &scope.OlderThan, "older-than", 0, "closed for longer than this, such as 720h")
	f.BoolVar(&scope.Notes, "notes", false, "also the notes of --agent, and the labels of files that it wrote")
	f.BoolVar(&scope.Undelivered, "undelivered", false, "also messages with a reply not yet delivered to a webhook")
	f.BoolVar(&scope.Dry, "dry-run", false, "only count")
	return cmd
}

// checkScope refuses a scope that is probably wider than intended.
func checkScope(scope operate.PurgeScope, aged bool) error {
	switch {
	case scope.Agent == "" && scope.User == "" && !aged:
		return shell.Misused("give --agent, --user, --agent with --conversation, or --older-than")
	case scope.Agent == "" && scope.Conversation != "":
		return shell.Misused("--conversation needs --agent: conversations belong to an agent")
	case scope.Agent == "" && scope.Notes:
		return shell.Misused("--notes needs --agent")
	case scope.Notes && (scope.User != "" || scope.Conversation != "" || aged):
		return shell.Misused("--notes goes only with --agent: it means all notes of the agent, and notes have no age")
	case aged && scope.OlderThan < time.Second:
		return shell.Misused("--older-than is %s: it must be at least 1s", scope.OlderThan)
	}
	return nil
}

// tellOfTokens names the tokens that are bound to a user: the name stays in them.
func tellOfTokens(ctx context.Context, s *shell.Session, store *operate.Store, user string) error {
	if user == "" {
		return nil
	}
	tokens, err := store.Tokens(ctx)
	for _, token := range tokens {
		if token.User == user {
			s.Err.Line(`token %s is bound to the user and stays: "turnctl tokens revoke %[1]s" deletes it`, token.Name)
		}
	}
	return err
}

func showPurged(s, problems *term.Screen, dry bool, done operate.Purged) {
	verb := "removed"
	if dry {
		verb = "would be removed"
	}
	text := term.Plural(done.Messages, "message") + ", " + term.Plural(done.Turns, "turn") + ", " +
		term.Plural(done.Outputs, "tool result")
	if done.Notes > 0 {
		text += ", " + term.Plural(done.Notes, "note")
	}
	s.Line("%s: %s", verb, text)
	if done.Kept > 0 {
		problems.Line(`%s could not be deleted: "turnctl set-aside" says why`, term.Plural(done.Kept, "message"))
	}
}
