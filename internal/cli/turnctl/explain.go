package turnctl

import (
	"context"
	"maps"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
)

// An explanation is what can be said of a turn in sentences, by topic.
type explanation struct {
	TurnID turnkeeper.TurnID    `json:"turn_id"`
	State  turnkeeper.TurnState `json:"state"`
	Topics []topic              `json:"topics"`
}

type topic struct {
	Name      string   `json:"topic"` // asked, ran, uncertain, ended, held, cost, requests, next
	Sentences []string `json:"sentences"`
}

// topicHeadings are the topics in words.
var topicHeadings = map[string]string{
	"asked": "What was asked", "ran": "What ran", "uncertain": "What is not certain", "ended": "Why it ended so", "held": "Who held it",
	"cost": "What it cost", "requests": "What the model was not shown", "next": "What you can do",
}

func explainCommand(s *shell.Session) *cobra.Command {
	var turn turnArg
	var message int64
	cmd := &cobra.Command{
		Use: "explain TURN|latest | --message ID", Short: "Tell in sentences why a turn ended as it did, or what a message waits for", Args: shell.AtMostOneArg,
		Long: `Tell in sentences what was asked of a turn, what ran, which calls are of unknown
outcome, which bound or error stopped it, who held it when, what it cost, and
what can be done now. With -o json the sentences come by topic: asked, ran,
uncertain, ended, held, cost, requests, next. Their wording may change.

With --message it tells what a message waits for: messages before it, the turn
that holds its lane, a pause after a failure, the scheduler, workers, models, a
budget. With -o json each is an entry of waits, with its reason and until when.

` + shell.ExitHelp,
		Example: `  turnctl explain latest
  turnctl explain 41 -o json
  turnctl explain --message 12`,
		RunE: func(cmd *cobra.Command, args []string) error {
			byMessage := cmd.Flags().Changed("message")
			if (len(args) == 1) == byMessage {
				return shell.Misused("give a turn, or --message with the id of a message")
			}
			if byMessage && message < 1 {
				return shell.Misused("--message is %d: it must be the id of a message", message)
			}
			return s.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
				if byMessage {
					return explainMessage(cmd.Context(), s, db, turnkeeper.MessageID(message))
				}
				e, err := explainTurn(cmd.Context(), s, cfg, db, turn.named(args))
				if err != nil {
					return err
				}
				return s.Print(e, func() { showExplanation(s.Out, e) })
			})
		},
	}
	turn.addAgent(cmd)
	cmd.Flags().Int64Var(&message, "message", 0, "tell what this message waits for")
	return cmd
}

func explainTurn(ctx context.Context, s *shell.Session, cfg *config.Config, db *database.Database, turn turnArg) (explanation, error) {
	view, err := findTurn(ctx, db.Store, turn)
	if err != nil {
		return explanation{}, err
	}
	x := explainer{TurnView: view, Clock: s.Clock()}
	if x.as, x.of, err = db.Store.RetriesOf(ctx, view.Turn.MessageID); err != nil {
		return explanation{}, err
	}
	if x.workers, err = db.Store.Workers(ctx); err != nil {
		return explanation{}, err
	}
	source, err := db.Store.Definition(ctx, view.Turn.DefinitionHash)
	if err == nil {
		// A definition that this program cannot read has bounds that it does not know.
		if definition, err := agentdef.ParseRecorded(view.Turn.Agent, source); err == nil {
			bounds := cfg.BoundsFor(definition)
			x.bounds = &bounds
		}
	}
	return x.explain(), nil
}

func showExplanation(s *term.Screen, e explanation) {
	headings := maps.Clone(topicHeadings)
	if !e.State.Terminal() {
		headings["ended"] = "Where it stands"
	}
	showTopics(s, e.Topics, headings)
}

func showTopics(s *term.Screen, topics []topic, headings map[string]string) {
	for i, topic := range topics {
		if i > 0 {
			s.Line("")
		}
		s.Line("%s", s.Paint(term.Bold, headings[topic.Name]))
		for _, sentence := range topic.Sentences {
			for j, line := range term.Wrap(sentence, s.Readable()-4) {
				s.Line("%s%s", [...]string{"  ", "    "}[min(j, 1)], line)
			}
		}
	}
}
