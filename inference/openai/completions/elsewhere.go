package completions

import (
	"encoding/json"
	"slices"
	"strings"

	"turnkeeper/inference/openai/internal/loose"
)

// Reasons for Response.Doubt: arguments that stand where the protocol has none. A call whose own arguments are missing
// would run without any.
const (
	doubtElsewhere = "the arguments of a call may stand in another member of it"
	doubtTwoForms  = "two parts of the answer name different calls"
	doubtChoices   = "the answer has several choices with one index"
)

// An other holds what an answer says about its calls outside of tool_calls.
type other struct {
	name, arguments loose.Growing // of function_call, which tool_calls replaced
	calls           []piece       // of the newest message that repeats the answer; nil: none
}

// addMessage keeps the calls of a message that is not read as the answer; nil: there is none.
func (o *other) addMessage(m *message) {
	if m != nil && len(m.calls) > 0 {
		o.calls = m.calls
	}
}

// addFunctionCall adds a part of function_call, which servers still send.
func (o *other) addFunctionCall(name string, arguments json.RawMessage) {
	if name != o.name.String() {
		o.name.Add(loose.Fragment(name))
	}
	o.arguments.Add(loose.Arguments(arguments))
}

// settleOthers sets a.doubt if another part of the answer may hold the arguments of a call, or another call.
func (a *answer) settleOthers() {
	if len(a.calls) == 0 {
		return
	}
	for _, call := range a.calls {
		if call.hasStray() {
			a.doubted(doubtElsewhere)
		}
	}
	if !a.other.agrees(a.calls) {
		a.doubted(doubtTwoForms)
	}
}

// harmless holds members of a call that servers add and that are no arguments.
var harmless = map[string]bool{
	"extra_content": true, "provider_specific_fields": true, "thought_signature": true, "signature": true,
	"cache_control": true,
	"description":   true, "strict": true, "status": true,
}

// likeArguments holds names under which servers and models write arguments, in lower case.
var likeArguments = map[string]bool{
	"arguments": true, "args": true, "argument": true, "parameters": true, "params": true, "input": true,
	"kwargs": true, "custom": true,
}

// hasStray reports whether members of a call other than its arguments may be its arguments: those with such a name,
// unless they say the same, and any that is not known to be harmless, if the call has no arguments of its own.
func (c *callParts) hasStray() bool {
	for _, members := range []map[string]json.RawMessage{c.object, c.function} {
		for name, value := range members {
			switch {
			case likeArguments[strings.ToLower(name)]:
				if given := loose.Compact(string(loose.Arguments(value))); given != "" &&
					given != loose.Compact(c.arguments.String()) {
					return true
				}
			case !c.given && !harmless[name] && (value[0] == '{' || value[0] == '[' || value[0] == '"' &&
				len(value) > 2):
				return true
			}
		}
	}
	return false
}

// agrees reports whether function_call, and a message that repeats the answer, name the calls.
func (o *other) agrees(calls []*callParts) bool {
	name, arguments := o.name.String(), o.arguments.String()
	if name+arguments != "" && (len(calls) != 1 || !calls[0].equals(name, arguments)) {
		return false
	}
	return o.calls == nil || slices.EqualFunc(calls, o.calls, func(c *callParts, p piece) bool {
		return c.equals(p.name, string(p.args))
	})
}

func (c *callParts) equals(name, arguments string) bool {
	return c.name == name && loose.Compact(c.arguments.String()) == loose.Compact(arguments)
}
