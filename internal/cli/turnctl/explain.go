package turnctl

import (
	"context"
	"maps"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/asks"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/storage/operate"
)

// An explanation describes a turn in sentences, by topic.
type explanation struct {
	TurnID turnkeeper.TurnID    `json:"turn_id"`
	State  turnkeeper.TurnState `json:"state"`
	Topics []topic              `json:"topics"`
}

type topic struct {
	Name      string   `json:"topic"` // asked, ran, uncertain, ended, held, cost, requests, next
	Sentences []string `json:"sentences"`
}

// topicHeadings are the headings of the topics.
var topicHeadings = map[string]string{
	"asked": "What was asked", "ran": "What ran", "uncertain": "What is uncertain", "ended": "How it ended",
	"held": "Dispatches",
	"cost": "What it cost", "requests": "What its requests left out or changed", "next": "What you can do",
}

func explainCommand(s *shell.Session) *cobra.Command {
	var turn turnArg
	var message int64
	cmd := &cobra.Command{
		Use:   "explain TURN|latest | --message ID",
		Short: "Explain in sentences why a turn ended as it did, or what a message waits for", Args: shell.AtMostOneArg,
		Long: `Explain in sentences what a turn was asked, what ran, which calls have an unknown
outcome, which limit or error stopped it, which workers ran it, what it cost, and
what you can do now. With -o json the sentences are grouped by topic: asked, ran,
uncertain, ended, held, cost, requests, next. Their wording may change.

With --message it lists what a message waits for: messages ahead of it, the turn
that holds its lane, a pause after a failure, the scheduler, workers, models, a
budget. With -o json each is an entry of waits, with a reason and an end time.

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
	cmd.Flags().Int64Var(&message, "message", 0, "explain what this message waits for")
	return cmd
}

func explainTurn(ctx context.Context, s *shell.Session, cfg *config.Config, db *database.Database,
	turn turnArg) (explanation, error) {
	view, err := findTurn(ctx, db.Store, turn)
	if err != nil {
		return explanation{}, err
	}
	x := explainer{TurnView: view, Clock: s.Clock()}
	if x.as, x.of, err = db.Store.RetriesOf(ctx, view.Turn.MessageID); err != nil {
		return explanation{}, err
	}
	if !view.Turn.State.Terminal() {
		levels, err := db.Store.Levels(ctx)
		if err != nil {
			return explanation{}, err
		}
		x.levels = diagnosis.NotNormal(levels)
	}
	if x.expired, err = db.Store.ListAsks(ctx, operate.AskFilter{Turn: view.Turn.ID, State: asks.Expired}); err != nil {
		return explanation{}, err
	}
	if x.workers, err = db.Store.Workers(ctx); err != nil {
		return explanation{}, err
	}
	if x.differs, err = comparisons(ctx, db.Store, view, s.Masker.Part); err != nil {
		return explanation{}, err
	}
	source, err := db.Store.Definition(ctx, view.Turn.DefinitionHash)
	if err == nil {
		// The bounds stay unknown if this program cannot read the definition.
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
		headings["ended"] = "Status"
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
