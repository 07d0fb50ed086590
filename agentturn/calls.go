package agentturn

import (
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
)

// calls are the rounds of a turn, with methods for their calls.
type calls []turnkeeper.Round

// all returns the calls in the order the model asked for them.
func (c calls) all() []turnkeeper.ToolCall { return prompt.CallsOf(c) }

// each returns pointers to the calls that is selects, in order.
func (c calls) each(is func(turnkeeper.ToolCall) bool) (picked []*turnkeeper.ToolCall) {
	for i := range c {
		for j := range c[i].Calls {
			if call := &c[i].Calls[j]; is(*call) {
				picked = append(picked, call)
			}
		}
	}
	return picked
}

// count returns the number of calls that is selects.
func (c calls) count(is func(turnkeeper.ToolCall) bool) (n int) {
	for i := range c {
		for j := range c[i].Calls {
			if is(c[i].Calls[j]) {
				n++
			}
		}
	}
	return n
}

// any reports whether is selects a call.
func (c calls) any(is func(turnkeeper.ToolCall) bool) bool { return c.count(is) > 0 }

// call returns a pointer to the call, which must exist.
func (c calls) call(key turnkeeper.CallKey) *turnkeeper.ToolCall {
	for i := range c {
		for j := range c[i].Calls {
			if call := &c[i].Calls[j]; call.Key == key {
				return call
			}
		}
	}
	panic(fmt.Sprintf("the turn has no call %s", key))
}

// open returns the calls that have not ended, except detached ones.
func (c calls) open() []*turnkeeper.ToolCall {
	return c.each(func(call turnkeeper.ToolCall) bool { return !call.State.Answered() && !isDetached(call) })
}

// detached returns the open detached calls.
func (c calls) detached() []*turnkeeper.ToolCall { return c.each(isDetached) }

// isDetached reports whether a call is detached and open: its result will arrive whether
// the turn runs or waits.
func isDetached(call turnkeeper.ToolCall) bool {
	return call.Awaited && call.State == turnkeeper.CallRunning
}

// upTo returns the calls up to and including key.
func (c calls) upTo(key turnkeeper.CallKey) []turnkeeper.ToolCall {
	return slices.DeleteFunc(c.all(), func(call turnkeeper.ToolCall) bool { return call.Key.Compare(key) > 0 })
}

// effected reports whether a tool with an effect has started, in any execution.
func (c calls) effected() bool {
	return c.any(func(call turnkeeper.ToolCall) bool {
		if call.Effect == turnkeeper.EffectNone || !call.State.Executed() {
			return false
		}
		return call.State != turnkeeper.CallCancelled || call.Nonce != ""
	})
}

// executed returns the number of started calls, without paging calls.
func (c calls) executed() int {
	return c.count(func(call turnkeeper.ToolCall) bool { return call.State.Executed() && !call.Paging })
}

// awaitsReply reports whether a sub-agent must reply before the model can be asked.
func (c calls) awaitsReply() bool { return c.any(awaitsReply) }

// blocked reports whether a call must not start yet: it has an effect, and a call with an
// effect before it in the same answer has not ended. Sub-agents do not block each other;
// they run in parallel.
func (c calls) blocked(call *turnkeeper.ToolCall) bool {
	if call.Effect == turnkeeper.EffectNone {
		return false
	}
	for _, before := range c[call.Key.Round-1].Calls[:call.Key.Ordinal-1] {
		bothSpawn := before.Name == turnkeeper.ToolSpawnAgent && call.Name == turnkeeper.ToolSpawnAgent
		if before.Effect != turnkeeper.EffectNone && !before.State.Answered() && !bothSpawn {
			return true
		}
	}
	return false
}

// usedUp reports whether no model call is left.
func (c calls) usedUp(b turnkeeper.Bounds) bool {
	return prompt.Charged(c) >= b.MaxRounds || len(c) >= b.RoundCeiling
}

// nextIsLast reports whether the next model call is a continuation and the last one
// allowed, which makes tools useless to it.
func (c calls) nextIsLast(b turnkeeper.Bounds) bool {
	return len(c) > 0 && (prompt.Charged(c)+1 >= b.MaxRounds || len(c)+1 >= b.RoundCeiling || c.overLimit())
}

// overLimit reports whether the model asked for more calls than the turn may run. The
// next round is then the last one.
func (c calls) overLimit() bool {
	return c.any(func(call turnkeeper.ToolCall) bool { return isRefused(call, overLimit) })
}
