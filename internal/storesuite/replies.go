package storesuite

import (
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// refusedCalls checks that a reply says why each call was refused, without what follows in the result, which may quote
// the model.
func refusedCalls(e *env) {
	d := e.planned(slices.Repeat([]turnkeeper.Effect{turnkeeper.EffectOnce}, 2*len(turnlog.Refusals))...)
	var results []turnlog.CallResult
	var want string
	for i, why := range slices.Concat(turnlog.Refusals, turnlog.Refusals) {
		shown, name := why+": RAW", "tool"
		if i >= len(turnlog.Refusals) {
			shown = turnlog.Denied + shown
		}
		if why == turnlog.RefusedUnknown {
			name = "(unknown tool)"
		}
		results = append(results, result(key(1, i+1), "", turnkeeper.CallDenied, shown))
		want += name + ": " + why + "\n"
	}
	d.append(turnlog.Entry{Results: results})
	wantErr(e, "end", d.end(turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds,
		Silent: true}), nil)
	reply, _ := e.Reply(d.record.Message.ID)
	var got string
	for _, c := range reply.Calls {
		got += c.Name + ": " + c.Problem + "\n"
	}
	equal(e, "calls", got, want)
}

// replyWithoutText checks that a silent end writes one reply with the state of each call, and nothing that a model or
// tool wrote.
func replyWithoutText(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce, turnkeeper.EffectNone, turnkeeper.EffectOnce,
		turnkeeper.EffectOnce,
		turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	timedOut := result(key(1, 3), "", turnkeeper.CallFailed, "tool error: 'x' timed out after 2.5 s: RAW")
	timedOut.Preview = timedOut.Shown
	d.append(turnlog.Entry{Results: []turnlog.CallResult{
		result(key(1, 1), n, turnkeeper.CallCancelled, "RAW"),
		result(key(1, 2), "", turnkeeper.CallDenied, "denied: not enough time left in this turn\nRAW"),
		timedOut, result(key(1, 4), "", turnkeeper.CallCancelled, "RAW"),
		result(key(1, 5), "", turnkeeper.CallDenied, "tool not found: RAW"),
		result(key(1, 6), "", turnkeeper.CallDenied, "invalid arguments: unexpected RAW"),
		result(key(1, 7), "", turnkeeper.CallDenied, "denied: the destination RAW is not allowed"),
	}})
	wantErr(e, "end", d.end(turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError,
		ErrorClass: "auth", Silent: true}), nil)
	reply, ok := e.Reply(d.record.Message.ID)
	if !ok || reply.Body != "" || reply.Outcome != turnkeeper.TurnDegraded ||
		reply.StopReason != turnkeeper.StopInferenceError || reply.ErrorClass != "auth" {
		e.Errorf("reply %+v", reply)
	}
	var got string
	for _, c := range reply.Calls {
		got += fmt.Sprintf("%d %s %s %s: %s\n", c.Ordinal, c.Key, c.Name, c.State, c.Problem)
	}
	equal(e, "calls", got,
		"1 round-1-tool-1 tool cancelled: it may or may not have happened\n2 round-1-tool-2 tool denied: not enough time left in this turn\n"+
			"3 round-1-tool-3 tool failed: timed out after 2.5 s\n4 round-1-tool-4 tool cancelled: cancelled before it ended\n"+
			"5 round-1-tool-5 (unknown tool) denied: tool not found\n6 round-1-tool-6 tool denied: invalid arguments\n7 round-1-tool-7 tool denied: refused\n")
}
