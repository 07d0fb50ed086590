package agentturn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// answer gives a call its result, in memory and with the next write.
func (t *execution) answer(call *turnkeeper.ToolCall, result turnkeeper.CallResult) {
	t.apply(call, result)
	t.pending.answer(result)
}

// apply gives a call its result in memory, and tells the watchers.
func (t *execution) apply(call *turnkeeper.ToolCall, result turnkeeper.CallResult) {
	t.tellProgress()
	t.forget(call)
	known := call.State == turnkeeper.CallRunning && prompt.WentOn(*call) // the round went on without it
	call.State, call.Shown, call.Preview = result.State, result.Shown, result.Preview
	call.OutputID = cmp.Or(result.OutputID, call.OutputID)
	if result.State == turnkeeper.CallRunning {
		t.events.Event(turnkeeper.EventNotice, call.Key.Round, 0, transcript.NoticeData{Text: call.Name + " goes on in the background"})
		t.tellIfOver(call.Key.Round)
		return
	}
	t.dirty = true
	call.Duration, call.Usage, call.EndedAt = result.Duration, result.Usage, time.Now()
	if result.Output != nil {
		call.OutputID = result.Output.ID
	}
	delete(t.interrupted, call.Key)
	t.tellResult(*call)
	if !known {
		t.tellIfOver(call.Key.Round)
	}
}

// tellIfOver tells the watchers that every call of a round is answered, be it with
// a handle.
func (t *execution) tellIfOver(number int) {
	i := slices.IndexFunc(t.rounds, func(r turnkeeper.Round) bool { return r.Number == number })
	round := t.rounds[i]
	if slices.ContainsFunc(round.Calls, func(c turnkeeper.ToolCall) bool {
		return !c.State.Answered() && (c.State != turnkeeper.CallRunning || owed(c))
	}) {
		return
	}
	t.events.Event(turnkeeper.EventRoundStop, number, 0, transcript.RoundStopData{
		FinishReason: round.FinishReason, Model: round.Model, Calls: len(round.Calls), Usage: round.Usage,
	})
}

func (t *execution) tellResult(call turnkeeper.ToolCall) {
	t.events.Event(turnkeeper.EventToolResult, call.Key.Round, t.events.Block(), transcript.ToolData{
		Call: call.Key.String(), Name: call.Name, State: call.State,
		Preview: call.Preview, Millis: call.Duration.Milliseconds(), SubAgent: t.subAgents[call.Key],
	})
}

// textResult answers a call that did not run, or whose tool has nothing to say
// about it.
func textResult(call *turnkeeper.ToolCall, state turnkeeper.CallState, text string) turnkeeper.CallResult {
	return turnkeeper.CallResult{
		Key: call.Key, Nonce: call.Nonce, State: state, Shown: text, Preview: outputs.Preview(text),
	}
}

// take is the way of every tool's result: bounded, cleaned and measured. What
// is shown whole is not stored a second time. id is that of the output.
func (t *execution) take(call *turnkeeper.ToolCall, raw tools.Result, id turnkeeper.OutputID) turnkeeper.CallResult {
	if raw.IsError && isRefusal(outputs.Clean(raw.Text)) { // the words of a tool are no bound of the turn
		raw.Text = "tool error: " + raw.Text
	}
	raw, attached := t.attach(call, raw)
	taken, drafted := t.taken(raw, t.offered.Limits(call, id))
	result := turnkeeper.CallResult{Key: call.Key, Shown: taken.Shown, Preview: taken.Preview, Attached: attached}
	if drafted || raw.ShowAs != nil || raw.Bytes != nil || taken.Shown != taken.Output.Text || taken.Output.Incomplete {
		taken.Output.ID, taken.Output.TurnID, taken.Output.Call = id, t.record.Turn.ID, call.Key
		result.Output = &taken.Output
		t.prompt.Sizes[id] = taken.Output.Tokens
	}
	if raw.ShowAs != nil {
		result.Shown = outputs.Clean(raw.ShowAs(string(taken.Output.ID)))
		result.Preview = outputs.Preview(result.Shown)
	}
	return result
}

// attach readies what comes with a result to be stored, and tells the model of it.
func (t *task) attach(call *turnkeeper.ToolCall, raw tools.Result) (tools.Result, []turnkeeper.Output) {
	return attach(t.record.Turn.ID, call.Key, raw, t.offered.MaxChars(call.Name))
}

// attach does so for the call of a turn: below the text, or above one of more than
// maxChars, which will be cut.
func attach(turn turnkeeper.TurnID, key turnkeeper.CallKey, raw tools.Result, maxChars int) (tools.Result, []turnkeeper.Output) {
	if len(raw.Attached) == 0 || raw.Bytes != nil || raw.Kept != nil || raw.ShowAs != nil {
		return raw, nil
	}
	var attached []turnkeeper.Output
	var lines []string
	for _, a := range raw.Attached {
		content := a.Bytes
		if content == nil {
			content = []byte{}
		}
		taken := outputs.Take(outputs.Raw{Bytes: content, MediaType: a.MediaType}, outputs.Limits{})
		taken.Output.ID, taken.Output.TurnID, taken.Output.Call = outputs.NewID(), turn, key
		attached = append(attached, taken.Output)
		lines = append(lines, attachedLine(a.Name, taken.Output))
	}
	parts := []string{raw.Text, strings.Join(lines, "\n")}
	if len(raw.Text) > maxChars {
		slices.Reverse(parts)
	}
	raw.Text = strings.TrimSpace(strings.Join(parts, "\n\n"))
	return raw, attached
}

// attachedLine tells of an output that is stored beside what is shown.
func attachedLine(name string, o turnkeeper.Output) string {
	return fmt.Sprintf("[%s, stored as output %s: %s]", outputs.Preview(name), o.ID, strings.Trim(o.Description, "[]"))
}

// taken is a result ready to be stored and shown. drafted says that its content
// was written while it came.
func (t *task) taken(raw tools.Result, limits outputs.Limits) (_ outputs.Taken, drafted bool) {
	if taken, drafted := raw.Kept.(outputs.Taken); drafted {
		return taken, true
	}
	return outputs.Take(rawOf(raw), limits), false
}

func rawOf(r tools.Result) outputs.Raw {
	return outputs.Raw{Text: r.Text, Bytes: r.Bytes, MediaType: r.MediaType, Incomplete: r.Incomplete, Size: r.RawBytes}
}

// toolCall is a call as its tool gets it. What model calls take that it makes
// is added to used.
func (t *execution) toolCall(call *turnkeeper.ToolCall, used *toolrun.Meter) tools.Call {
	turn := t.record.Turn
	return tools.Call{
		TurnID: turn.ID, Agent: turn.Agent, Conversation: turn.Conversation, Lane: turn.Lane, Key: call.Key,
		Arguments:      t.argumentsOf(call),
		Outputs:        t.outputs(used),
		IdempotencyKey: idempotencyKey(turn, call.Key),
		Progress:       t.progress.Of(call.Key, call.Name),
		Sample:         t.sampler(call, used),
	}
}

// idempotencyKey is the same for each start of a call. Turn ids are unique in one
// database only; with its birth, a turn is told from those of others that call the
// same system.
func idempotencyKey(turn turnkeeper.Turn, key turnkeeper.CallKey) string {
	return fmt.Sprintf("turn-%d-%x-%s", turn.ID, turn.CreatedAt.UnixMicro(), key)
}
