package storesuite

import (
	"fmt"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// replyWithoutText checks that a silent end writes one reply with the state of each call, and nothing that a model or tool wrote.
func replyWithoutText(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce, turnkeeper.EffectNone, turnkeeper.EffectOnce, turnkeeper.EffectOnce,
		turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	timedOut := result(key(1, 3), "", turnkeeper.CallFailed, "tool error: 'x' timed out after 2.5 s: RAW")
	timedOut.Preview = timedOut.Shown
	d.append(turnlog.Entry{Results: []turnlog.CallResult{
		result(key(1, 1), n, turnkeeper.CallCancelled, "RAW"),
		result(key(1, 2), "", turnkeeper.CallDenied, "denied: not enough time left in this turn\nRAW"),
		timedOut, result(key(1, 4), "", turnkeeper.CallCancelled, "RAW"),
		result(key(1, 5), "", turnkeeper.CallDenied, "tool not found: RAW"), result(key(1, 6), "", turnkeeper.CallDenied, "invalid arguments: unexpected RAW"),
		result(key(1, 7), "", turnkeeper.CallDenied, "denied: the destination RAW is not allowed"),
	}})
	wantErr(e, "end", d.end(turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError, ErrorClass: "auth", Silent: true}), nil)
	reply, ok := e.Reply(d.record.Message.ID)
	if !ok || reply.Body != "" || reply.Outcome != turnkeeper.TurnDegraded || reply.StopReason != turnkeeper.StopInferenceError || reply.ErrorClass != "auth" {
		e.Errorf("reply %+v", reply)
	}
	var got string
	for _, c := range reply.Calls {
		got += fmt.Sprintf("%d %s %s %s: %s\n", c.Ordinal, c.Key, c.Name, c.State, c.Problem)
	}
	equal(e, "calls", got, "1 round-1-tool-1 tool cancelled: it may or may not have happened\n2 round-1-tool-2 tool denied: not enough time left in this turn\n"+
		"3 round-1-tool-3 tool failed: timed out after 2.5 s\n4 round-1-tool-4 tool cancelled: cancelled before it ended\n"+
		"5 round-1-tool-5 (unknown tool) denied: tool not found\n6 round-1-tool-6 tool denied: invalid arguments\n7 round-1-tool-7 tool denied: refused\n")
}
