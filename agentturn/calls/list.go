package calls

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// A List holds the rounds of a turn and their calls, in the order in which the model asked for them, and the asks of
// the turn. Only one goroutine may change it.
type List struct {
	Rounds []turnkeeper.Round // all so far, including those that are not yet written
	Before []policy.Mark      // labels of what the turn knew before its first call
	Asks   Asks               // those of the turn's record, and those that it has opened since

	turn  turnkeeper.TurnID
	offer prompt.Offer
	calls []*Call
}

// New returns the list of a turn that has this record. Answers of people arrive with the record of the next dispatch.
func New(r *turnlog.Record, offer prompt.Offer, before []policy.Mark) *List {
	l := &List{turn: r.Turn.ID, offer: offer, Before: before}
	for _, round := range r.Rounds {
		round.Calls = slices.Clone(round.Calls)
		l.Add(round, l.of(round.Calls))
	}
	for _, c := range l.calls {
		c.Gate = slices.Contains(r.Gates, c.Key)
		c.Labels = r.Labels.Calls[c.Key]
	}
	for _, ask := range r.Asks {
		l.Open(ask)
	}
	return l
}

// of returns a Call for each of the planned calls.
func (l *List) of(planned []turnkeeper.ToolCall) (made []*Call) {
	for i := range planned {
		made = append(made, l.Make(&planned[i]))
	}
	return made
}

// Make returns the Call of a planned call, with its tool.
func (l *List) Make(planned *turnkeeper.ToolCall) *Call {
	c := &Call{ToolCall: planned, Handles: l.offer.HasHandles(planned)}
	c.Tool, _ = l.offer.Get(planned.Name)
	c.Spec, _ = l.offer.Spec(planned.Name)
	return c
}

// Add appends a round. made are its calls, in the same order as round.Calls, to which they point from now on.
func (l *List) Add(round turnkeeper.Round, made []*Call) {
	l.Rounds = append(l.Rounds, round)
	for i, c := range made {
		c.ToolCall = &round.Calls[i]
	}
	l.calls = append(l.calls, made...)
}

// Open adds an ask, to its call too. Asks about a reply or a budget have none.
func (l *List) Open(ask asks.Ask) {
	opened := &ask
	l.Asks = append(l.Asks, opened)
	if c := l.find(ask.Call); c != nil {
		c.Asks = append(c.Asks, opened)
	}
}

// Withdraw removes the open asks about a call that was answered without them, and returns them.
func (l *List) Withdraw(c *Call) (withdrawn []asks.Ask) {
	for _, a := range c.Asks {
		if !a.Closed() {
			gone := *a
			gone.State = asks.Withdrawn
			withdrawn = append(withdrawn, gone)
		}
	}
	if len(withdrawn) > 0 {
		open := func(a *asks.Ask) bool { return a.Call == c.Key && !a.Closed() }
		l.Asks, c.Asks = slices.DeleteFunc(l.Asks, open), slices.DeleteFunc(c.Asks, open)
	}
	return withdrawn
}

// AsksAbout returns the asks of a kind that are about a round as a whole, such as its reply.
func (l *List) AsksAbout(round int, kind asks.Kind) []asks.Ask {
	return l.Asks.That(func(a *asks.Ask) bool { return a.Call == turnkeeper.CallKey{Round: round} && a.Kind == kind })
}

// All returns the calls as they are journaled.
func (l *List) All() []turnkeeper.ToolCall { return prompt.CallsOf(l.Rounds) }

// Those returns the calls that is selects, in order.
func (l *List) Those(is func(*Call) bool) (picked []*Call) {
	for _, c := range l.calls {
		if is(c) {
			picked = append(picked, c)
		}
	}
	return picked
}

// Count returns the number of calls that is selects.
func (l *List) Count(is func(*Call) bool) (n int) {
	for _, c := range l.calls {
		if is(c) {
			n++
		}
	}
	return n
}

// Any reports whether is selects a call.
func (l *List) Any(is func(*Call) bool) bool { return slices.ContainsFunc(l.calls, is) }

// Call returns the call with a key, which must exist.
func (l *List) Call(key turnkeeper.CallKey) *Call {
	if c := l.find(key); c != nil {
		return c
	}
	panic(fmt.Sprintf("the turn has no call %s", key))
}

func (l *List) find(key turnkeeper.CallKey) *Call {
	i := slices.IndexFunc(l.calls, func(c *Call) bool { return c.Key == key })
	if i < 0 {
		return nil
	}
	return l.calls[i]
}

// Unanswered returns the calls that have not ended, except detached ones.
func (l *List) Unanswered() []*Call {
	return l.Those(func(c *Call) bool { return !c.State.Answered() && !c.Detached() })
}

// Runnable returns the unanswered calls that do not run in the background.
func (l *List) Runnable() []*Call {
	return l.Those(func(c *Call) bool { return !c.State.Answered() && !c.Detached() && c.Run == nil })
}

// Detached returns the open detached calls.
func (l *List) Detached() []*Call { return l.Those((*Call).Detached) }

// Runs returns the runs in the background.
func (l *List) Runs() (runs toolrun.Set) {
	for _, c := range l.calls {
		if c.Run != nil {
			runs = append(runs, c.Run)
		}
	}
	return runs
}

// Earlier returns the calls before a call, as they are journaled.
func (l *List) Earlier(c *Call) []turnkeeper.ToolCall {
	return slices.DeleteFunc(l.All(), func(o turnkeeper.ToolCall) bool { return o.Key.Compare(c.Key) >= 0 })
}

// backFrom yields the calls before a call, the last first, without copying them.
func (l *List) backFrom(c *Call) iter.Seq[*turnkeeper.ToolCall] {
	return func(yield func(*turnkeeper.ToolCall) bool) {
		for _, o := range slices.Backward(l.calls) {
			if o.Key.Compare(c.Key) < 0 && !yield(o.ToolCall) {
				return
			}
		}
	}
}

// Effected reports whether a tool with an effect has started, in any execution.
func (l *List) Effected() bool {
	return l.Any(func(c *Call) bool {
		if c.Effect == turnkeeper.EffectNone || !c.State.Executed() {
			return false
		}
		return c.State != turnkeeper.CallCancelled || c.Nonce != ""
	})
}

// Executed returns the number of started calls, without paging calls.
func (l *List) Executed() int {
	return l.Count(func(c *Call) bool { return c.State.Executed() && !c.Paging })
}

// AwaitsReply reports whether a sub-agent must reply before the model can be asked.
func (l *List) AwaitsReply() bool { return l.Any((*Call).AwaitsReply) }

// Blocked reports whether a call must not start yet: it has an effect, and a call with an effect before it in the same
// answer has not ended. Sub-agents do not block each other; they run in parallel.
func (l *List) Blocked(c *Call) bool {
	if c.Effect == turnkeeper.EffectNone {
		return false
	}
	for _, before := range l.Rounds[c.Key.Round-1].Calls[:c.Key.Ordinal-1] {
		bothSpawn := before.Name == turnkeeper.ToolSpawnAgent && c.Name == turnkeeper.ToolSpawnAgent
		if before.Effect != turnkeeper.EffectNone && !before.State.Answered() && !bothSpawn {
			return true
		}
	}
	return false
}

// UsedUp reports whether no model call is left.
func (l *List) UsedUp() bool {
	return prompt.Charged(l.Rounds) >= l.offer.Bounds.MaxRounds || len(l.Rounds) >= l.offer.Bounds.RoundCeiling
}

// NextIsLast reports whether the next model call is a continuation and the last one allowed, which makes tools useless
// to it.
func (l *List) NextIsLast() bool {
	b := l.offer.Bounds
	return len(l.Rounds) > 0 && (prompt.Charged(l.Rounds)+1 >= b.MaxRounds || len(l.Rounds)+1 >= b.RoundCeiling ||
		l.OverLimit())
}

// OverLimit reports whether the model asked for more calls than the turn may run. The next round is then the last one.
func (l *List) OverLimit() bool {
	return l.Any(func(c *Call) bool { return IsRefused(*c.ToolCall, OverLimit) })
}

// OverLimit is the prefix of the result of every call that is over a limit.
const OverLimit = turnlog.Denied + turnlog.RefusedOverLimit + " of "

// IsRefused reports whether a call was refused for this reason. Its result begins with the reason, which the journal
// records nowhere else.
func IsRefused(c turnkeeper.ToolCall, reason string) bool {
	return (c.State == turnkeeper.CallDenied || c.State == turnkeeper.CallFailed) && strings.HasPrefix(c.Shown, reason)
}
