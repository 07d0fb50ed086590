package agentturn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// maxReplyAsks bounds how often a turn asks about its reply. It asks again only if the text has changed since.
const maxReplyAsks = 3

// replyWithheld is the text of a reply whose content is withheld.
const replyWithheld = "The answer was withheld, because it may hold private content."

// A replyStep is what becomes of the reply of a turn.
type replyStep string

const (
	replySend     replyStep = "send"
	replyWithhold replyStep = "withhold"
	replyAsk      replyStep = "ask"   // a person
	replyAwait    replyStep = "await" // the answer of a person who was asked
)

// stepOf decides about a reply that may hold private content. earlier are the asks about it so far, of which each but
// the last was approved. mayAsk is false if the turn cannot wait for a person.
func stepOf(sink, text string, earlier []asks.Ask, mayAsk bool) replyStep {
	approved := func(a asks.Ask) bool { return a.State == asks.Approved }
	switch {
	case sink == policy.ReplyAllow:
		return replySend
	case sink != policy.ReplyAsk:
		return replyWithhold
	case slices.ContainsFunc(earlier, func(a asks.Ask) bool { return approved(a) && a.Arguments == text }):
		return replySend
	case mayAsk && slices.ContainsFunc(earlier, func(a asks.Ask) bool { return a.State == asks.Open }):
		return replyAwait
	case mayAsk && len(earlier) < maxReplyAsks && !slices.ContainsFunc(earlier, func(a asks.Ask) bool {
		return !approved(a)
	}):
		return replyAsk
	default:
		return replyWithhold
	}
}

// tells reports whether a reply may hold content that the model has seen. onDegraded is a text of the agent's
// definition.
func (r reply) tells(onDegraded string) bool {
	return r.said > 0 || r.text != "" && r.text != onDegraded && !strings.HasPrefix(r.text, unanswered)
}

// replySink returns what becomes of a reply that may hold private content.
func (t *task) replySink() string { return cmp.Or(t.def.ReplySink, t.cfg.ReplySink, policy.ReplyAllow) }

// guardReply replaces the end of the turn if its reply may hold private content that the agent's reply_sink does not
// allow: the turn waits for a person, or ends without the content. mayAsk is false if another dispatch could not come
// to the same end. A turn that is to finish asks nobody. The reply of a sub-agent goes to its parent, with its labels.
func (e *execution) guardReply(mayAsk bool) {
	if e.record.Lineage.Parent != 0 || e.end.state != turnkeeper.TurnSucceeded &&
		e.end.state != turnkeeper.TurnDegraded {
		return
	}
	from := policy.Only(policy.Private, e.calls.SeenBefore(len(e.calls.Rounds)+1))
	r := e.endings().sent(e.end.reply(e.calls.Rounds))
	if len(from) == 0 || !r.tells(e.def.Replies.OnDegraded) {
		return
	}
	text := string(prompt.Canonical(map[string]any{"text": r.text}))
	key := turnkeeper.CallKey{Round: len(e.calls.Rounds)}
	earlier := e.calls.AsksAbout(key.Round, asks.KindReply)
	switch stepOf(e.replySink(), text, earlier, mayAsk && !e.finishing()) {
	case replyAsk:
		e.put(asks.Question{
			Call: key, Kind: asks.KindReply, N: len(earlier) + 1, Tool: "reply", Arguments: text, Rule: policy.FlowRule,
			Reason: fmt.Sprintf("the reply is sent out, and the turn has private content from %s",
				cmp.Or(from[0].Source, "an unknown source")),
		})
		e.end = e.waiting()
	case replyAwait:
		e.end = e.waiting()
	case replyWithhold:
		e.log.Info("the reply was withheld", zap.String("label", string(from[0].Label)),
			zap.String("source", from[0].Source))
		e.end = withheld(e.end.outcome)
	}
}

// withheld returns the end of a turn whose reply is not sent.
func withheld(o turnlog.Outcome) *ending {
	return &ending{state: turnkeeper.TurnDegraded, stop: turnkeeper.StopWithheld, outcome: o,
		reply: func([]turnkeeper.Round) reply {
			return reply{text: replyWithheld, notice: true}
		}}
}
