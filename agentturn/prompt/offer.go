package prompt

import (
	"cmp"
	"strings"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// An Offer holds the tools that a model may call, and the settings that apply to them.
type Offer struct {
	*tools.Registry
	Bounds turnkeeper.Bounds
	Stored bool // results are stored and can be read again
}

// Readers are the tools that read stored results. Every request of an agent that has other tools
// offers them, if the agent's settings allow it, so that its list of tools does not change.
var Readers = []string{turnkeeper.ToolGetContinuation, turnkeeper.ToolGetToolOutput, turnkeeper.ToolWaitForToolOutput}

// Pages reports whether the model can read the rest of a shortened result.
func (o Offer) Pages() bool {
	_, known := o.Get(turnkeeper.ToolGetContinuation)
	return known && o.Bounds.Paging && o.Stored
}

// Retrieves reports whether the model can retrieve an output by its handle.
func (o Offer) Retrieves() bool {
	_, reads := o.Get(turnkeeper.ToolGetToolOutput)
	_, waits := o.Get(turnkeeper.ToolWaitForToolOutput)
	return reads && waits && o.Bounds.Async && o.Stored
}

// MayGoOn reports whether a call of the tool may continue in the background.
func (o Offer) MayGoOn(tool string) bool {
	spec, _ := o.Spec(tool)
	return o.Retrieves() && o.Bounds.AsyncTimeout > 0 && spec.MayGoOn()
}

// HasHandles reports whether the arguments of a call may contain handles.
func (o Offer) HasHandles(call *turnkeeper.ToolCall) bool {
	return o.Bounds.OutputHandles && o.Stored && !call.Paging && strings.Contains(call.Arguments, `"output:`)
}

// MaxChars returns the maximum number of characters of a tool's result that the model is
// shown at once.
func (o Offer) MaxChars(tool string) int {
	spec, _ := o.Spec(tool)
	return cmp.Or(spec.MaxResultChars, o.Bounds.MaxToolResultChars)
}

// largestPage returns the largest MaxChars of all tools.
func (o Offer) largestPage() int {
	chars := o.Bounds.MaxToolResultChars
	for _, spec := range o.Specs() {
		chars = max(chars, spec.MaxResultChars)
	}
	return chars
}

// Limits returns the limits of a call's result, which would be stored under the id. A
// paging call is never answered with a handle.
func (o Offer) Limits(call *turnkeeper.ToolCall, id turnkeeper.OutputID) outputs.Limits {
	limits := outputs.Limits{MaxChars: o.MaxChars(call.Name)}
	if o.Retrieves() && !call.Paging {
		limits.Placeholder = outputs.Placeholder{ID: id, Tool: call.Name}
		limits.PlaceholderAbove = int64(o.Bounds.AsyncTokenThreshold)
	}
	mode := modeOf(call)
	if mode == "slice" {
		limits.MaxChars += outputs.SpanHeaderChars
	}
	switch {
	case call.Name == turnkeeper.ToolGetContinuation:
		limits.MaxChars = o.largestPage() + outputs.PageMarkerChars
	case mode == "raw": // the tool applies the threshold itself
		limits.MaxChars = turnkeeper.MaxOutputBytes
	case o.Pages():
		limits.CallID = call.WireID
	}
	return limits
}
