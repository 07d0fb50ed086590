package agentturn

import (
	"testing"

	"turnkeeper/asks"
	"turnkeeper/policy"
)

// TestStepOfAReply checks what becomes of a reply with the text "b".
func TestStepOfAReply(t *testing.T) {
	ask := func(text string, state asks.State) asks.Ask {
		return asks.Ask{Question: asks.Question{Arguments: text}, State: state}
	}
	other := ask("a", asks.Approved)
	for name, c := range map[string]struct {
		sink      string
		earlier   []asks.Ask
		want      replyStep
		cannotAsk replyStep
	}{
		"allowed":  {policy.ReplyAllow, nil, replySend, replySend},
		"withheld": {policy.ReplyWithhold, nil, replyWithhold, replyWithhold},
		"withheld after an approval": {policy.ReplyWithhold, []asks.Ask{ask("b", asks.Approved)}, replyWithhold,
			replyWithhold},
		"an unknown setting":   {"always", []asks.Ask{ask("b", asks.Approved)}, replyWithhold, replyWithhold},
		"not asked about":      {policy.ReplyAsk, nil, replyAsk, replyWithhold},
		"open":                 {policy.ReplyAsk, []asks.Ask{ask("b", asks.Open)}, replyAwait, replyWithhold},
		"another text is open": {policy.ReplyAsk, []asks.Ask{ask("a", asks.Open)}, replyAwait, replyWithhold},
		"approved":             {policy.ReplyAsk, []asks.Ask{ask("b", asks.Approved)}, replySend, replySend},
		"denied": {policy.ReplyAsk, []asks.Ask{ask("b", asks.Denied)}, replyWithhold,
			replyWithhold},
		"another text was denied": {policy.ReplyAsk, []asks.Ask{ask("a", asks.Denied)}, replyWithhold,
			replyWithhold},
		"expired": {policy.ReplyAsk, []asks.Ask{ask("b", asks.Expired)}, replyWithhold,
			replyWithhold},
		"withdrawn": {policy.ReplyAsk, []asks.Ask{ask("b", asks.Withdrawn)}, replyWithhold,
			replyWithhold},
		"another text was approved": {policy.ReplyAsk, []asks.Ask{other}, replyAsk, replyWithhold},
		"then it is open": {policy.ReplyAsk, []asks.Ask{other, ask("b", asks.Open)}, replyAwait,
			replyWithhold},
		"then it was approved": {policy.ReplyAsk, []asks.Ask{other, ask("b", asks.Approved)},
			replySend, replySend},
		"then it was denied": {policy.ReplyAsk, []asks.Ask{other, ask("b", asks.Denied)}, replyWithhold,
			replyWithhold},
		"approved before another": {policy.ReplyAsk, []asks.Ask{ask("b", asks.Approved), other},
			replySend, replySend},
		"two others were approved": {policy.ReplyAsk, []asks.Ask{other, other}, replyAsk, replyWithhold},
		"the last ask is open": {policy.ReplyAsk, []asks.Ask{other, other, ask("b", asks.Open)}, replyAwait,
			replyWithhold},
		"the last ask approved it": {policy.ReplyAsk, []asks.Ask{other, other, ask("b", asks.Approved)},
			replySend, replySend},
		"three others were approved": {policy.ReplyAsk, []asks.Ask{other, other, other}, replyWithhold, replyWithhold},
	} {
		for mayAsk, want := range map[bool]replyStep{true: c.want, false: c.cannotAsk} {
			if got := stepOf(c.sink, "b", c.earlier, mayAsk); got != want {
				t.Errorf("%s, may ask: %v: %s, want %s", name, mayAsk, got, want)
			}
		}
	}
}

// TestWhatAReplyTells checks which replies may hold content: the model's texts and summaries of calls, but no fixed
// texts.
func TestWhatAReplyTells(t *testing.T) {
	for name, c := range map[string]struct {
		r    reply
		want bool
	}{
		"a text of the model":            {reply{text: "It is 4711.", said: 2}, true},
		"the model says a fixed text":    {reply{text: "Sorry.", said: 2}, true},
		"the model says an excuse":       {reply{text: unanswered + "4711", said: 1}, true},
		"a summary of the calls":         {reply{text: "Tool results: 1 succeeded, 0 failed.\n- look: 4711"}, true},
		"the agent's own text":           {reply{text: "Sorry."}, false},
		"a sentence without content":     {reply{text: unanswered + "the time for it was over."}, false},
		"a text with that sentence":      {reply{text: "Then: " + unanswered}, true},
		"no text":                        {reply{}, false},
		"a reply that is not to be sent": {reply{silent: true}, false},
	} {
		if got := c.r.tells("Sorry."); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
