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
	return o.Stored && o.Bounds.Paging && o.Has(turnkeeper.ToolGetContinuation)
}

// Retrieves reports whether the model can retrieve an output by its handle.
func (o Offer) Retrieves() bool {
	return o.Stored && o.Bounds.Async && o.Has(turnkeeper.ToolGetToolOutput) && o.Has(turnkeeper.ToolWaitForToolOutput)
}

// MayGoOn reports whether a call of the tool may continue in the background.
func (o Offer) MayGoOn(tool tools.Spec) bool {
	return o.Retrieves() && o.Bounds.AsyncTimeout > 0 && tool.MayGoOn()
}

// HasHandles reports whether the arguments of a call may contain handles.
func (o Offer) HasHandles(call *turnkeeper.ToolCall) bool {
	return o.Bounds.OutputHandles && o.Stored && !call.Paging && strings.Contains(call.Arguments, `"output:`)
}

// MaxChars returns the maximum number of characters of a tool's result that the model is
// shown at once.
func (o Offer) MaxChars(tool tools.Spec) int {
	return cmp.Or(tool.MaxResultChars, o.Bounds.MaxToolResultChars)
}

// MaxCharsOf is like MaxChars, for the tool of a name, which the offer may lack.
func (o Offer) MaxCharsOf(name string) int {
	tool, _ := o.Spec(name)
	return o.MaxChars(tool)
}

// largestPage returns the largest MaxChars of all tools.
func (o Offer) largestPage() int {
	chars := o.Bounds.MaxToolResultChars
	for _, spec := range o.Specs() {
		chars = max(chars, spec.MaxResultChars)
	}
	return chars
}

// Limits returns the limits of the result of a call of a tool, which would be stored under the id. A
// paging call is never answered with a handle.
func (o Offer) Limits(call *turnkeeper.ToolCall, tool tools.Spec, id turnkeeper.OutputID) outputs.Limits {
	limits := outputs.Limits{MaxChars: o.MaxChars(tool)}
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
