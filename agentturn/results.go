package agentturn

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A tooling runs the tools of a turn's calls and makes their results. What it returns to run is safe for concurrent
// use; it does not use what the turn's goroutine changes.
type tooling struct {
	task       *task
	calls      *calls.List
	asker      *toolAsker                    // of models
	progress   *toolrun.Progress             // of running calls
	sizes      map[turnkeeper.OutputID]int64 // of stored outputs, in tokens
	memory     *membudget.Account            // of the results of calls
	kept       *keptResults                  // of the process
	drafts     toolrun.Drafts                // nil: large results are stored with the result only
	leftBehind *atomic.Int64                 // number of the process's tools that run past their timeout
}

// callResult bounds, cleans and measures the result of a tool. Every result passes through it or
// through backgroundResult. The text is stored only if it is not shown whole. id is that of the output.
func (w *tooling) callResult(call *calls.Call, raw tools.Result, id turnkeeper.OutputID) turnlog.CallResult {
	return w.takeResult(call, raw, id, false)
}

// takeResult is callResult. stored says that the text is stored even if it is shown whole.
func (w *tooling) takeResult(call *calls.Call, raw tools.Result, id turnkeeper.OutputID,
	stored bool) turnlog.CallResult {
	if raw.IsError && isRefusal(outputs.Clean(raw.Text)) { // anyRefused must not match a tool's text
		raw.Text = "tool error: " + raw.Text
	}
	raw, attached := w.attach(call, raw)
	taken, drafted := w.prepareOutput(raw, w.task.offered.Limits(call.ToolCall, call.Spec, id))
	result := turnlog.CallResult{Key: call.Key, Shown: taken.Shown, Preview: taken.Preview, Attached: attached,
		Labels: w.calls.ResultLabels(call, raw.Labels)}
	if stored || drafted || raw.ShowAs != nil || raw.Bytes != nil || taken.Shown != taken.Output.Text ||
		taken.Output.Incomplete {
		taken.Output.ID, taken.Output.TurnID, taken.Output.Call = id, w.task.record.Turn.ID, call.Key
		result.Output = &taken.Output
		w.sizes[id] = taken.Output.Tokens
	}
	if raw.ShowAs != nil {
		result.Shown = outputs.Clean(raw.ShowAs(string(taken.Output.ID)))
		result.Preview = outputs.Preview(result.Shown)
	}
	return result
}

// attach prepares a result's attachments to be stored, and names them in its text.
func (w *tooling) attach(call *calls.Call, raw tools.Result) (tools.Result, []turnkeeper.Output) {
	return attach(w.task.record.Turn.ID, call.Key, raw, w.task.offered.MaxChars(call.Spec))
}

// attach names the attachments below the text, or above a text of more than maxChars
// characters, because that will be cut.
func attach(turn turnkeeper.TurnID, key turnkeeper.CallKey, raw tools.Result,
	maxChars int) (tools.Result, []turnkeeper.Output) {
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

// attachedLine returns the line that names an attached output.
func attachedLine(name string, o turnkeeper.Output) string {
	return fmt.Sprintf("[%s, stored as output %s: %s]", outputs.Preview(name), o.ID, strings.Trim(o.Description, "[]"))
}

// prepareOutput returns the result, ready to be stored and shown. drafted reports whether its
// content was already written as a draft.
func (w *tooling) prepareOutput(raw tools.Result, limits outputs.Limits) (_ outputs.Taken, drafted bool) {
	if taken, drafted := raw.Kept.(outputs.Taken); drafted {
		return taken, true
	}
	return outputs.Take(rawOf(raw), limits), false
}

func rawOf(r tools.Result) outputs.Raw {
	return outputs.Raw{Text: r.Text, Bytes: r.Bytes, MediaType: r.MediaType, Incomplete: r.Incomplete, Size: r.RawBytes}
}

// toolCall returns the call as its tool gets it. The usage of model calls that the tool
// makes is added to used.
func (w *tooling) toolCall(call *calls.Call, stored tools.Outputs, used *toolrun.Meter) tools.Call {
	turn, labels := w.task.record.Turn, w.calls.LabelsOf(call)
	return tools.Call{
		TurnID: turn.ID, Agent: turn.Agent, User: turn.User, Conversation: turn.Conversation, Lane: turn.Lane,
		Key:            call.Key,
		Arguments:      call.Args(),
		Outputs:        stored,
		Labels:         labels,
		SharedNotes:    w.task.def.SharedNotes,
		IdempotencyKey: idempotencyKey(turn, call.Key),
		Progress:       w.progress.Of(call.Key, call.Name),
		Sample:         w.asker.sampler(call, used),
		Input:          call.InputForRun(),

		CheckDestination: call.DestinationsOf(labels),
	}
}

// asRuled returns a call as its tool gets it to decide about it, without stored results.
func (w *tooling) asRuled(call *calls.Call) tools.Call {
	return w.toolCall(call, nil, &toolrun.Meter{})
}

// idempotencyKey returns the same key for each start of a call. Turn ids are unique in one
// database only, so the key includes the time the turn was created: the turns of two
// databases may call the same system.
func idempotencyKey(turn turnkeeper.Turn, key turnkeeper.CallKey) string {
	return fmt.Sprintf("turn-%d-%x-%s", turn.ID, turn.CreatedAt.UnixMicro(), key)
}

// runResult returns the result of a background run. The model still sees the handle, in
// an unchanged history; the notice reports the end of the call.
func (w *tooling) runResult(call *calls.Call, run *toolrun.Run) turnlog.CallResult {
	result := w.backgroundResult(call, run.Result.Result)
	result.Nonce, result.State, result.Duration, result.Ran = run.Nonce, stateOf(run.Result.Outcome, call.Effect),
		run.Result.Duration, true
	result.Usage = run.Result.Used
	return result
}

// inline replaces the handle in a late result by the text, because a late result is stored
// without its output. Binary content becomes an attached output, which the text names.
func (w *tooling) inline(r *turnlog.CallResult) {
	o := r.Output
	switch {
	case o == nil:
	case o.Drafted:
		r.Shown = r.Preview
	case o.Bytes != nil:
		late := *o
		late.ID = outputs.NewID() // a later run of the call may store its own under the handle
		r.Attached = append(slices.Clip(r.Attached), late)
		r.Shown = attachedLine("the result", late)
	default:
		r.Shown = outputs.Take(outputs.Raw{Text: o.Text, MediaType: o.MediaType},
			outputs.Limits{MaxChars: w.task.offered.MaxChars(w.calls.Call(r.Key).Spec)}).Shown
	}
}

// backgroundResult prepares the result of a background call. The text is shown only if the model
// can no longer retrieve it by its handle.
func (w *tooling) backgroundResult(call *calls.Call, raw tools.Result) turnlog.CallResult {
	if !w.task.offered.Retrieves() {
		return w.callResult(call, raw, call.OutputID)
	}
	// also where the model reads it by its handle
	if note := call.ApprovalNote(); note != "" && raw.Bytes == nil && raw.Kept == nil {
		raw.Text = note + "\n\n" + raw.Text
	}
	raw, attached := w.attach(call, raw)
	taken, _ := w.prepareOutput(raw, outputs.Limits{MaxChars: w.task.offered.MaxChars(call.Spec)})
	taken.Output.ID, taken.Output.TurnID, taken.Output.Call = call.OutputID, w.task.record.Turn.ID, call.Key
	w.sizes[call.OutputID] = taken.Output.Tokens
	return turnlog.CallResult{Key: call.Key, Shown: call.Shown, Preview: taken.Preview, Output: &taken.Output,
		Attached: attached, Labels: w.calls.ResultLabels(call, raw.Labels)}
}
