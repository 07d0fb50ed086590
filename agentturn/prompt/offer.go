package prompt

import (
	"cmp"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// An Offer holds the tools that a model may call, and on which terms.
type Offer struct {
	*tools.Registry
	Bounds turnkeeper.Bounds
	Stored bool // results are stored and can be read again
}

// Readers are the tools that read stored results. They are offered to every agent whose
// turn has something that they could read, if its settings allow it.
var Readers = []string{turnkeeper.ToolGetContinuation, turnkeeper.ToolGetToolOutput, turnkeeper.ToolWaitForToolOutput}

// Pages reports whether the model can read on where a result was cut.
func (o Offer) Pages() bool {
	_, known := o.Get(turnkeeper.ToolGetContinuation)
	return known && o.Bounds.Paging && o.Stored
}

// Retrieves reports whether the model can retrieve what it was given a handle for.
func (o Offer) Retrieves() bool {
	_, reads := o.Get(turnkeeper.ToolGetToolOutput)
	_, waits := o.Get(turnkeeper.ToolWaitForToolOutput)
	return reads && waits && o.Bounds.Async && o.Stored
}

// MayGoOn reports whether a call of the tool may go on in the background.
func (o Offer) MayGoOn(tool string) bool {
	spec, _ := o.Spec(tool)
	return o.Retrieves() && o.Bounds.AsyncTimeout > 0 && spec.MayGoOn()
}

// Guarded reports whether a call is not to run directly after an equal one that
// succeeded. The tool's current spec decides; a tool that is gone runs nothing.
func (o Offer) Guarded(call turnkeeper.ToolCall) bool {
	spec, known := o.Spec(call.Name)
	return known && spec.Guarded()
}

// HasHandles reports whether arguments of the call may be handles.
func (o Offer) HasHandles(call *turnkeeper.ToolCall) bool {
	return o.Bounds.OutputHandles && o.Stored && !call.Paging && strings.Contains(call.Arguments, `"output:`)
}

// MaxChars returns how much of a tool's result the model is shown at once.
func (o Offer) MaxChars(tool string) int {
	spec, _ := o.Spec(tool)
	return cmp.Or(spec.MaxResultChars, o.Bounds.MaxToolResultChars)
}

// largestPage returns the most that a page of any tool's result has.
func (o Offer) largestPage() int {
	most := o.Bounds.MaxToolResultChars
	for _, spec := range o.Specs() {
		most = max(most, spec.MaxResultChars)
	}
	return most
}

// Limits returns those of a call's result, to be stored under the id. A page has its
// own: what it says of more comes on top. What reads an output is never answered with
// a handle.
func (o Offer) Limits(call *turnkeeper.ToolCall, id turnkeeper.OutputID) outputs.Limits {
	limits := outputs.Limits{MaxChars: o.MaxChars(call.Name)}
	if o.Retrieves() && !call.Paging {
		limits.Placeholder = outputs.Placeholder{ID: id, Tool: call.Name}
		limits.PlaceholderAbove = int64(o.Bounds.AsyncTokenThreshold)
	}
	switch {
	case call.Name == turnkeeper.ToolGetContinuation:
		limits.MaxChars = o.largestPage() + outputs.PageMarkerChars
	case readsRaw(call): // bounded by the threshold, and by nothing else
		limits.MaxChars = turnkeeper.MaxOutputBytes
	case o.Pages():
		limits.CallID = call.WireID
	}
	return limits
}

// useful reports whether a reader has something to read: the model can be told of
// outputs by a marker or by a handle.
func (o Offer) useful(reader string, calls []turnkeeper.ToolCall) bool {
	any := func(is func(turnkeeper.ToolCall) bool) bool { return slices.ContainsFunc(calls, is) }
	stored := func(c turnkeeper.ToolCall) bool { return c.OutputID != "" }
	switch {
	case !o.Stored:
		return false
	case reader == turnkeeper.ToolGetContinuation:
		return o.Pages() && any(stored)
	case reader == turnkeeper.ToolGetToolOutput:
		return o.Pages() && any(stored) || any(Handled)
	default:
		return any(WentOn)
	}
}
