package agentturn

import (
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// labelsOf returns the labels of a turn at the start of an execution: recorded ones, those of its agent's inbox, and those of the
// definitions of the tools that it is offered, which do not change within an execution.
func (t *task) labelsOf() turnlog.Labels {
	l, turn := t.record.Labels, t.record.Turn
	if l.Calls == nil {
		l.Calls = map[turnkeeper.CallKey][]policy.Mark{}
	}
	unwritten := func(p turnlog.Past) bool { return len(p.Rounds) == 0 } // it may have been lost before it wrote its labels
	if t.record.Lineage.Parent == 0 && (turn.Trigger == turnkeeper.TriggerMessage || slices.ContainsFunc(t.record.History, unwritten)) {
		var inbox []policy.Label
		for _, label := range t.def.InboxLabels {
			inbox = append(inbox, policy.Label(label))
		}
		l.Before = policy.Join(l.Before, policy.Marks(inbox, fmt.Sprintf("a message to %s", turn.Agent)))
	}
	for _, spec := range t.offered.Specs() {
		l.Before = policy.Join(l.Before, policy.Marks(spec.DefinitionLabels, "the definition of "+spec.Name))
	}
	return l
}

// flows track the labels of a turn's content.
type flows struct{ *ledger }

// marksBefore returns the labels of what the model had seen when it asked for the calls of a round.
func (l flows) marksBefore(round int) []policy.Mark {
	marks := l.labels.Before
	for _, call := range l.rounds.all() { // in order, for a stable source
		if call.Key.Round < round {
			marks = policy.Join(marks, l.labels.Calls[call.Key])
		}
	}
	return marks
}

// marksOf returns the labels of a call. Any untrusted content may have led the model to make the call. A call has private
// content only if an argument is the handle of a private result, or if the model wrote it after it had seen private content.
// Arguments that the model composed of handles count as written.
func (l flows) marksOf(call *turnkeeper.ToolCall) []policy.Mark {
	if len(l.labels.Before) == 0 && len(l.labels.Calls) == 0 {
		return nil // nothing that the turn knows has labels
	}
	before := l.marksBefore(call.Key.Round)
	handles, written := l.handlesIn(call)
	marks := policy.Only(policy.Untrusted, before)
	if written {
		marks = before
	}
	for _, key := range handles {
		marks = policy.Join(marks, l.labels.Calls[key])
	}
	return marks
}

// handlesIn returns the calls to whose results the arguments refer by handles; the zero key stands for no call. written reports whether any other argument can
// carry content: anything except null, true, false, or an enum value of the tool's schema. The name of an argument that the
// schema does not list carries content, and so do the range of a handle and the order of values in a list.
func (l flows) handlesIn(call *turnkeeper.ToolCall) (keys []turnkeeper.CallKey, written bool) {
	value, _ := arguments.Parse(call.Arguments) // what cannot be read has no members
	args, isObject := value.Members()
	if !isObject {
		return nil, true
	}
	spec, _ := l.offered.Spec(call.Name)
	resolves := l.offered.HasHandles(call)
	choices := choicesOf(spec)
	for name, value := range args {
		words, named := choices[name]
		written = written || !named
		list, several := value.Items()
		if !several {
			list = []arguments.Value{value}
		}
		written = written || len(list) > 1
		for _, item := range list {
			_, isBool := item.Bool()
			switch text, isText := item.Text(); {
			case !several && (item.Null() || isBool || isText && slices.ContainsFunc(words, item.Equal)):
			case isText && resolves && !slices.Contains(spec.OutputIDs, name):
				key, whole := l.handleOf(call, text)
				keys = append(keys, key)
				written = written || !whole
			default:
				written = true
			}
		}
	}
	slices.SortFunc(keys, turnkeeper.CallKey.Compare)
	return keys, written
}

// handleOf returns the earlier call that a handle refers to, and whether the handle stands for its whole result. The zero key
// means that there is no such call.
func (l flows) handleOf(call *turnkeeper.ToolCall, text string) (key turnkeeper.CallKey, whole bool) {
	handle, ok, err := outputs.ParseHandle(text)
	if !ok || err != nil {
		return key, false
	}
	earlier := slices.DeleteFunc(l.rounds.all(), func(c turnkeeper.ToolCall) bool { return c.Key.Compare(call.Key) >= 0 })
	if i := prompt.IndexOf(earlier, handle.ID); i >= 0 {
		return earlier[i].Key, !handle.Part
	}
	return key, false
}

// choicesOf returns the values that a tool's schema lists, for each of the arguments that it names.
func choicesOf(spec tools.Spec) map[string][]arguments.Value {
	schema, _ := arguments.Parse(string(spec.Parameters)) // a schema that cannot be read names no argument
	properties, _ := schema.Member("properties")
	named, _ := properties.Members()
	choices := map[string][]arguments.Value{}
	for name, property := range named {
		enum, _ := property.Member("enum")
		choices[name], _ = enum.Items()
	}
	return choices
}

// mustBeWritten reports whether labels must be written before the call starts: it was checked against labels that wait to be written.
func (l flows) mustBeWritten(call *turnkeeper.ToolCall) bool {
	spec, _ := l.offered.Spec(call.Name)
	tool, _ := l.offered.Get(call.Name)
	_, decides := tool.(tools.Approver)
	rules := []string{l.cfg.Approve, spec.Approve, l.def.Approve[call.Name], l.def.Approve[policy.AllTools]}
	ruled := slices.ContainsFunc(rules, func(rule string) bool { return rule != "" && rule != policy.Never && rule != policy.Always })
	return l.pending.hasLabels() && (decides || ruled || len(spec.Flow.Sinks) > 0)
}

// destinationsOf returns the function that checks further destinations of a call. An approval does not cover them.
func (l flows) destinationsOf(call *turnkeeper.ToolCall) func(to string) error {
	spec, _ := l.offered.Spec(call.Name)
	from := policy.Only(policy.Private, l.marksOf(call))
	if len(from) == 0 || !slices.Contains(spec.Flow.Sinks, policy.Sends) {
		return nil
	}
	return func(to string) error {
		if spec.Flow.AllowsDestination(to) {
			return nil
		}
		return fmt.Errorf("the call may have private content from %s, and %q is not an allowed destination", from[0].Source, to)
	}
}

// resultMarks returns the labels of a call's result: those of its tool, those of its arguments, and more from the result itself.
// A tool that reads results can read those of its own answer too.
func (l flows) resultMarks(call *turnkeeper.ToolCall, more []policy.Mark) []policy.Mark {
	spec, _ := l.offered.Spec(call.Name)
	own := policy.Marks(spec.Flow.Labels, fmt.Sprintf("the result of %s in turn %d", call.Name, l.record.Turn.ID))
	if spec.Paging || len(spec.OutputIDs) > 0 {
		own = policy.Join(own, l.marksBefore(call.Key.Round+1))
	}
	return policy.Join(own, more, l.marksOf(call))
}

// label records the labels of a result.
func (l flows) label(result turnlog.CallResult) {
	l.labels.Calls[result.Key] = policy.Join(l.labels.Calls[result.Key], result.Labels)
}
