package agentturn

import (
	"fmt"

	"turnkeeper/agentturn/calls"
)

// agree panics if Next decides otherwise than the execution does.
func (e *execution) agree(call *calls.Call, do calls.Do, shown ...string) {
	e.agreeIn(e.shadow, call, do, shown...)
}

func (l *ledger) agreeIn(t calls.Turn, call *calls.Call, do calls.Do, shown ...string) {
	t.Time, t.Settles = l.timeFor(call.Spec), l.def.Settles()
	step := call.Next(t)
	text := step.Result.Shown
	if do == calls.Take {
		text = step.Text
	}
	if do == calls.Ask {
		text = step.Question.Reason + step.Question.Schema
	}
	if step.Do != do || len(shown) > 0 && text != shown[0] {
		panic(fmt.Sprintf("%s of %s: Next says %s %q, the execution does %s %q", call.Key, call.Name, step.Do, text, do, shown))
	}
}

func (l *ledger) agreeEnd(phase calls.Phase, call *calls.Call, do calls.Do, shown ...string) {
	l.agreeIn(calls.Turn{Phase: phase}, call, do, shown...)
}
