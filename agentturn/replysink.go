package agentturn

import (
	"cmp"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/policy"
)

// maxReplyAsks bounds how often a turn asks about its reply. It asks again only if the text has changed since.
const maxReplyAsks = 3

// replyWithheld is the text of a reply whose content is withheld.
const replyWithheld = "The answer was withheld, because it may hold private content."

// A replyGate decides whether the reply of a turn may be sent.
type replyGate struct{ *execution }

// guard replaces the end of the turn if its reply may hold private content that the agent's reply_sink does not allow: the turn
// waits for a person, or ends without the content. mayAsk is false if another dispatch could not come to the same end. The reply of
// a sub-agent goes to its parent, with its labels.
func (e replyGate) guard(mayAsk bool) {
	sink := cmp.Or(e.def.ReplySink, e.cfg.ReplySink, policy.ReplyAllow)
	from := policy.Only(policy.Private, flows{e.ledger}.marksBefore(len(e.rounds)+1))
	if sink == policy.ReplyAllow || len(from) == 0 || e.record.Lineage.Parent != 0 || !e.tells() {
		return
	}
	text := string(prompt.Canonical(map[string]any{"text": e.end.reply(e.rounds).text}))
	key := turnkeeper.CallKey{Round: len(e.rounds)}
	for n := 1; sink == policy.ReplyAsk && n <= maxReplyAsks; n++ {
		switch ask := e.people.of(key, asks.KindReply, n); {
		case ask == nil && mayAsk:
			e.put(asks.Question{
				Call: key, Kind: asks.KindReply, N: n, Tool: "reply", Arguments: text, Rule: policy.FlowRule,
				Reason: fmt.Sprintf("the reply is sent out, and the turn has private content from %s", cmp.Or(from[0].Source, "an unknown source")),
			})
			e.end = e.waiting()
			return
		case ask != nil && ask.State == asks.Open && mayAsk:
			e.end = e.waiting()
			return
		case ask != nil && ask.State == asks.Approved && ask.Arguments == text:
			return
		case ask == nil || ask.State != asks.Approved:
			n = maxReplyAsks
		}
	}
	e.withhold(from[0])
}

// tells reports whether the reply of the end may hold content that the model has seen.
func (e replyGate) tells() bool {
	if e.end.reply == nil || e.end.state != turnkeeper.TurnSucceeded && e.end.state != turnkeeper.TurnDegraded {
		return false
	}
	r := e.end.reply(e.rounds)
	if e.scheduled() && (r.said == 0 || e.def.Quiet(e.rounds[r.said-1].Text)) {
		return false // there is no reply
	}
	return r.said > 0 || r.text != "" && r.text != e.def.Replies.OnDegraded && !strings.HasPrefix(r.text, unanswered)
}

func (e replyGate) withhold(from policy.Mark) {
	e.log.Info("the reply was withheld", zap.String("label", string(from.Label)), zap.String("source", from.Source))
	e.end = &ending{state: turnkeeper.TurnDegraded, stop: turnkeeper.StopWithheld, outcome: e.end.outcome, reply: func([]turnkeeper.Round) reply {
		return reply{text: replyWithheld, notice: true}
	}}
}
