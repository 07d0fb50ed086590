package turnctl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A messageExplanation describes a message in sentences, by topic.
type messageExplanation struct {
	MessageID turnkeeper.MessageID    `json:"message_id"`
	State     turnkeeper.MessageState `json:"state"`
	Outcome   *turnkeeper.TurnState   `json:"outcome"` // of the turn that closed it; null: open
	TurnID    *turnkeeper.TurnID      `json:"turn_id"` // its newest; null: none yet
	Waits     []views.Wait            `json:"waits"`
	Topics    []topic                 `json:"topics"`
}

// A messageExplainer writes the explanation of a message.
type messageExplainer struct {
	waiting.Message
	term.Clock
	reply  *turnkeeper.Reply    // nil: none
	turn   *turnkeeper.Turn     // its newest; nil: none yet
	as, of turnkeeper.MessageID // its retry, and the message that it retries; 0: none
}

func explainMessage(ctx context.Context, s *shell.Session, db *database.Database, id turnkeeper.MessageID) error {
	x, err := readMessage(ctx, s, db.Store, id)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return shell.NotFound(`there is no message %d: "turnctl inbox" lists them`, id)
	}
	if err != nil {
		return err
	}
	e := x.explain()
	return s.Print(e, func() { showTopics(s.Out, e.Topics, messageHeadings) })
}

func readMessage(ctx context.Context, s *shell.Session, store *operate.Store,
	id turnkeeper.MessageID) (*messageExplainer, error) {
	x := &messageExplainer{Clock: s.Clock()}
	var err error
	// Read the reply before the message: a reply exists only once the message is closed.
	switch reply, err := store.ReplyTo(ctx, id); {
	case err == nil:
		x.reply = &reply
	case !errors.Is(err, turnkeeper.ErrNotFound):
		return nil, err
	}
	if x.Message, err = store.WaitingMessage(ctx, id); err != nil {
		return nil, err
	}
	turns, err := store.TurnsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(turns) > 0 {
		x.turn = &turns[len(turns)-1].Turn
	}
	x.as, x.of, err = store.RetriesOf(ctx, id)
	return x, err
}

// messageHeadings are the headings of the topics.
var messageHeadings = map[string]string{
	"asked": "What was asked", "stands": "Status", "waits": "What it waits for", "next": "What you can do",
}

func (x *messageExplainer) explain() messageExplanation {
	e := messageExplanation{
		MessageID: x.ID, State: x.State, Outcome: views.OrNull(x.Outcome), TurnID: views.OrNull(x.TurnID),
		Waits: views.All(x.Waits, views.OfWait),
	}
	for _, t := range []topic{{"asked", x.asked()}, {"stands", x.stands()}, {"waits", x.waits()}, {"next", x.next()}} {
		if len(t.Sentences) > 0 {
			e.Topics = append(e.Topics, t)
		}
	}
	return e
}

func (x *messageExplainer) asked() []string {
	said := []string{askedBy(x.Message, x.Agent, x.Clock)}
	if x.of != 0 {
		said = append(said, fmt.Sprintf("It is a retry of message %d.", x.of))
	}
	return said
}

// stands describes the state of the message, or how it ended.
func (x *messageExplainer) stands() (said []string) {
	accepted := "It was accepted at " + x.Moment(x.AcceptedAt)
	switch {
	case x.State == turnkeeper.MessageWaiting && x.Attempts == 0:
		said = append(said, accepted+" and has had no turn yet.")
	case x.State == turnkeeper.MessageWaiting:
		said = append(said, fmt.Sprintf("%s; %s ended without a reply, the last is turn %d.", accepted,
			term.Plural(x.Attempts, "turn"), x.TurnID))
	case x.State == turnkeeper.MessageRunning && len(x.Waits) == 0:
		said = append(said, fmt.Sprintf("%s, and turn %d runs%s.", accepted, x.TurnID, x.onWorker()))
	case x.State == turnkeeper.MessageRunning:
		said = append(said, fmt.Sprintf("%s, and turn %d is open.", accepted, x.TurnID))
	default:
		said = append(said, fmt.Sprintf("%s; turn %d closed it at %s: the turn %s.", accepted, x.TurnID,
			x.Moment(x.ClosedAt), x.closing()))
	}
	if x.reply != nil {
		said = append(said, fmt.Sprintf("Reply %d, %s: %s", x.reply.ID, x.reply.Outcome, quoted(x.reply.Body)))
	}
	if x.LastError != "" {
		said = append(said, "The last error: "+term.OneLine(x.LastError, 500))
	}
	return said
}

func (x *messageExplainer) onWorker() string {
	if x.turn == nil || x.turn.WorkerID == "" {
		return ""
	}
	return " on worker " + term.OneLine(string(x.turn.WorkerID), 100)
}

// closing says how the turn ended that closed the message.
func (x *messageExplainer) closing() string {
	if text := stateWords[x.Outcome]; text != "" {
		return text
	}
	return string(x.State)
}

// quoted returns a reply's text in quotation marks, or silentReply if it is empty.
func quoted(text string) string {
	if text == "" {
		return silentReply
	}
	return "“" + term.OneLine(text, 200) + "”"
}

func (x *messageExplainer) waits() (said []string) {
	for _, w := range x.Waits {
		said = append(said, "- "+words.Sentence(w.Long(x.Moment)))
	}
	return said
}

// next says what an operator can do, once for each reason.
func (x *messageExplainer) next() (said []string) {
	advise := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	for _, w := range x.Waits {
		advise("%s", w.Advice(x.ID, shell.Command("worker")))
	}
	switch {
	case x.ClosedAt.IsZero() && len(x.Waits) == 0:
		advise("Watch it: turnctl events %d --follow. Stop it: turnctl cancel %d.", x.TurnID, x.TurnID)
	case x.ClosedAt.IsZero():
	case x.as != 0:
		advise("It was retried as message %d.", x.as)
	default:
		advise("See the turn: turnctl explain %d.", x.TurnID)
	}
	return said
}
