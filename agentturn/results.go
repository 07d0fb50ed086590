package agentturn

import (
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// take is the way of every tool's result: bounded, cleaned and measured. What
// is shown whole is not stored a second time. id is that of the output.
func (l *ledger) take(call *turnkeeper.ToolCall, raw tools.Result, id turnkeeper.OutputID) turnkeeper.CallResult {
	if raw.IsError && isRefusal(outputs.Clean(raw.Text)) { // the words of a tool are no bound of the turn
		raw.Text = "tool error: " + raw.Text
	}
	raw, attached := l.attach(call, raw)
	taken, drafted := l.taken(raw, l.offered.Limits(call, id))
	result := turnkeeper.CallResult{Key: call.Key, Shown: taken.Shown, Preview: taken.Preview, Attached: attached}
	if drafted || raw.ShowAs != nil || raw.Bytes != nil || taken.Shown != taken.Output.Text || taken.Output.Incomplete {
		taken.Output.ID, taken.Output.TurnID, taken.Output.Call = id, l.record.Turn.ID, call.Key
		result.Output = &taken.Output
		l.sizes[id] = taken.Output.Tokens
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
func (l *ledger) toolCall(call *turnkeeper.ToolCall, stored tools.Outputs, used *toolrun.Meter) tools.Call {
	turn := l.record.Turn
	return tools.Call{
		TurnID: turn.ID, Agent: turn.Agent, Conversation: turn.Conversation, Lane: turn.Lane, Key: call.Key,
		Arguments:      l.argumentsOf(call),
		Outputs:        stored,
		IdempotencyKey: idempotencyKey(turn, call.Key),
		Progress:       l.progress.Of(call.Key, call.Name),
		Sample:         l.sampler(call, used),
	}
}

// idempotencyKey is the same for each start of a call. Turn ids are unique in one
// database only; with its birth, a turn is told from those of others that call the
// same system.
func idempotencyKey(turn turnkeeper.Turn, key turnkeeper.CallKey) string {
	return fmt.Sprintf("turn-%d-%x-%s", turn.ID, turn.CreatedAt.UnixMicro(), key)
}

// takeLater returns the result of a run in the background. The model knows it by its
// handle: what was sent once stays as it was, whatever the call ended with, and the
// notice tells of its end.
func (l *ledger) takeLater(call *turnkeeper.ToolCall, j *toolrun.Run) turnkeeper.CallResult {
	result := l.later(call, j.Result.Result)
	result.Nonce, result.State, result.Duration, result.Ran = j.Nonce, stateOf(j.Result.Outcome, call.Effect), j.Result.Took, true
	result.Usage = j.Result.Used
	return result
}
