package views

import (
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/policy"
	"turnkeeper/storage/operate"
)

// A Message is an entry of the inbox.
type Message struct {
	ID           turnkeeper.MessageID    `json:"id"`
	State        turnkeeper.MessageState `json:"state"`
	Agent        string                  `json:"agent"`
	User         string                  `json:"user" doc:"whose conversation it is; empty: no user's"`
	Conversation string                  `json:"conversation"`
	Lane         turnkeeper.Lane         `json:"lane"`
	Body         string                  `json:"body"`
	Key          string                  `json:"idempotency_key"`
	Priority     int                     `json:"priority"`
	Trigger      turnkeeper.Trigger      `json:"trigger"`
	Schedule     string                  `json:"schedule"`
	Slot         *time.Time              `json:"slot"`
	Attempts     int                     `json:"attempts"`
	TurnID       *turnkeeper.TurnID      `json:"turn_id"`
	Outcome      *turnkeeper.TurnState   `json:"outcome" schema:"ref=TurnOutcome" doc:"outcome of the turn that closed the message; null: the message is open"`
	LastError    string                  `json:"last_error"`
	Faults       int                     `json:"counted_attempts" doc:"failed attempts that count against the limit of attempts"`
	WaitsFor     []string                `json:"waits_for_models" doc:"models that are down and that the message waits for"`
	Waits        []Wait                  `json:"waits" doc:"why the message waits; empty: it is closed, or its turn runs"`
	TraceParent  string                  `json:"trace_parent"`
	AcceptedAt   time.Time               `json:"accepted_at"`
	DueAt        time.Time               `json:"due_at"`
	ClosedAt     *time.Time              `json:"closed_at"`
}

// OfMessage returns the view of a message.
func OfMessage(m waiting.Message) Message {
	return Message{
		ID: m.ID, State: m.State, Agent: m.Agent, User: m.User, Conversation: m.Conversation, Lane: m.Lane,
		Body: m.Body, Key: m.Key,
		Priority: m.Priority, Trigger: m.Trigger, Schedule: m.Schedule, Slot: OrNull(m.Slot), Attempts: m.Attempts,
		TurnID: OrNull(m.TurnID), Outcome: OrNull(m.Outcome), LastError: m.LastError, Faults: m.Faults,
		WaitsFor: append([]string{}, m.WaitsFor...), Waits: All(m.Waits, OfWait), TraceParent: m.TraceParent,
		AcceptedAt: m.AcceptedAt,
		DueAt:      m.DueAt, ClosedAt: OrNull(m.ClosedAt),
	}
}

// A Reply is an entry of the outbox.
type Reply struct {
	ID           turnkeeper.ReplyID   `json:"id"`
	MessageID    turnkeeper.MessageID `json:"message_id"`
	TurnID       turnkeeper.TurnID    `json:"turn_id"`
	Agent        string               `json:"agent"`
	User         string               `json:"user" doc:"whose conversation it is; empty: no user's"`
	Conversation string               `json:"conversation"`
	Outcome      turnkeeper.TurnState `json:"outcome" schema:"ref=TurnOutcome"`
	Body         string               `json:"body" doc:"empty: the agent is silent on this outcome (on_degraded, on_failed: silent)"`
	CreatedAt    time.Time            `json:"created_at"`
	ParentTurn   *turnkeeper.TurnID   `json:"parent_turn_id" doc:"the turn that called the sub-agent which wrote the reply; null: not by a sub-agent"`
	ReplyEnd
}

// An Exchange is a message of a conversation with its reply and tool calls.
type Exchange struct {
	Message Message     `json:"message"`
	Reply   *Reply      `json:"reply" doc:"null: none yet"`
	Calls   []ReplyCall `json:"calls" doc:"tool calls of the message's newest turn, so far"`
}

// OfExchange returns the view of an exchange.
func OfExchange(x operate.Exchange) Exchange {
	v := Exchange{Message: OfMessage(x.Message), Calls: OfReplyCalls(x.Calls)}
	if x.Reply != nil {
		v.Reply = new(OfReply(*x.Reply))
	}
	return v
}

// A ReplyEnd describes how the turn of a reply ended.
type ReplyEnd struct {
	StopReason turnkeeper.StopReason `json:"stop_reason" doc:"why the turn ended"`
	ErrorClass string                `json:"error_class" doc:"of the error that ended the turn; empty: none"`
	Calls      []ReplyCall           `json:"calls" doc:"the tool calls of the turn, in the order the model asked for them"`
	Labels     []string              `json:"labels" doc:"of what the turn knew: private, untrusted"`
}

// A ReplyCall is a tool call of the turn, without its result.
type ReplyCall struct {
	Ordinal    int                  `json:"ordinal" doc:"number of the call in the turn, from 1"`
	ID         string               `json:"id" doc:"round-R-tool-I"`
	Name       string               `json:"name"`
	Effect     turnkeeper.Effect    `json:"effect"`
	State      turnkeeper.CallState `json:"state"`
	DurationMs *int64               `json:"duration_ms" doc:"null: the call did not run, or its duration is unknown"`
	Error      string               `json:"error" doc:"why the call did not succeed, in a few words, without what its tool or the model wrote; empty: it succeeded, or was not needed"`
}

// OfReply returns the view of a reply.
func OfReply(r turnkeeper.Reply) Reply {
	return Reply{
		ID: r.ID, MessageID: r.MessageID, TurnID: r.TurnID, Agent: r.Agent, User: r.User, Conversation: r.Conversation,
		Outcome: r.Outcome,
		Body:    r.Body, CreatedAt: r.CreatedAt, ParentTurn: OrNull(r.ParentTurn), ReplyEnd: EndOfReply(r),
	}
}

// OfPushedReply returns the view of a reply for a webhook. The reply of a sub-agent is for its parent, so private
// content is left out of it.
func OfPushedReply(r turnkeeper.Reply) Reply {
	if r.ParentTurn != 0 && slices.Contains(r.Labels, string(policy.Private)) {
		r.Body = "This reply of a sub-agent was withheld, because it may hold private content."
	}
	return OfReply(r)
}

// EndOfReply returns the view of how the turn of a reply ended.
func EndOfReply(r turnkeeper.Reply) ReplyEnd {
	return ReplyEnd{r.StopReason, r.ErrorClass, OfReplyCalls(r.Calls), append([]string{}, r.Labels...)}
}

// OfReplyCalls returns the views of the calls of a reply.
func OfReplyCalls(calls []turnkeeper.ReplyCall) []ReplyCall { return All(calls, ofReplyCall) }

func ofReplyCall(c turnkeeper.ReplyCall) ReplyCall {
	v := ReplyCall{Ordinal: c.Ordinal, ID: c.Key.String(), Name: c.Name, Effect: c.Effect, State: c.State,
		Error: c.Problem}
	if c.Duration >= 0 {
		v.DurationMs = new(Millis(c.Duration))
	}
	return v
}
