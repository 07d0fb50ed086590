package calls

import (
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/arguments"
	"turnkeeper/outputs"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// SeenBefore returns the labels of what the model had seen when it asked for the calls of a round.
func (l *List) SeenBefore(round int) []policy.Mark {
	marks := l.Before
	for _, c := range l.calls { // in order, for a stable source
		if c.Key.Round < round {
			marks = policy.Join(marks, c.Labels)
		}
	}
	return marks
}

// LabelsOf returns the labels of a call. Any untrusted content may have led the model to make the call. A call has
// private content only if an argument is the handle of a private result, or if the model wrote it after it had seen
// private content. Arguments that the model composed of handles count as written.
func (l *List) LabelsOf(c *Call) []policy.Mark {
	if len(l.Before) == 0 && !l.Any(func(c *Call) bool { return len(c.Labels) > 0 }) {
		return nil // nothing that the turn knows has labels
	}
	before := l.SeenBefore(c.Key.Round)
	handles, written := l.handlesIn(c)
	marks := policy.Only(policy.Untrusted, before)
	if written {
		marks = before
	}
	for _, key := range handles {
		if of := l.find(key); of != nil {
			marks = policy.Join(marks, of.Labels)
		}
	}
	return marks
}

// handlesIn returns the calls to whose results the arguments refer by handles; the zero key stands for no call. written
// reports whether any other argument can carry content: anything except null, true, false, or an enum value of the
// tool's schema. The name of an argument that the schema does not list carries content, and so do the range of a handle
// and the order of values in a list.
func (l *List) handlesIn(c *Call) (keys []turnkeeper.CallKey, written bool) {
	value, _ := arguments.Parse(c.Arguments) // what cannot be read has no members
	args, isObject := value.Members()
	if !isObject {
		return nil, true
	}
	choices := choicesOf(c.Spec)
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
			case isText && c.Handles && !slices.Contains(c.Spec.OutputIDs, name):
				key, whole := l.handleOf(c, text)
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

// handleOf returns the earlier call that a handle refers to, and whether the handle stands for its whole result. The
// zero key means that there is no such call.
func (l *List) handleOf(c *Call, text string) (key turnkeeper.CallKey, whole bool) {
	handle, ok, err := outputs.ParseHandle(text)
	if !ok || err != nil {
		return key, false
	}
	earlier := l.Earlier(c)
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

// DestinationsOf returns the function that checks further destinations of a call with these labels; nil: none needs a
// check. An approval does not cover them.
func (c *Call) DestinationsOf(labels []policy.Mark) func(to string) error {
	from := policy.Only(policy.Private, labels)
	if len(from) == 0 || !slices.Contains(c.Spec.Flow.Sinks, policy.Sends) {
		return nil
	}
	flow := c.Spec.Flow
	return func(to string) error {
		if flow.AllowsDestination(to) {
			return nil
		}
		return fmt.Errorf("the call may have private content from %s, and %q is not an allowed destination",
			from[0].Source, to)
	}
}

// ResultLabels returns the labels of a call's result: those of its tool, those of its arguments, and more from the
// result itself. A tool that reads results can read those of its own answer too.
func (l *List) ResultLabels(c *Call, more []policy.Mark) []policy.Mark {
	own := policy.Marks(c.Spec.Flow.Labels, fmt.Sprintf("the result of %s in turn %d", c.Name, l.turn))
	if c.Spec.Paging || len(c.Spec.OutputIDs) > 0 {
		own = policy.Join(own, l.SeenBefore(c.Key.Round+1))
	}
	return policy.Join(own, more, l.LabelsOf(c))
}

// Label records the labels of a result.
func (c *Call) Label(result []policy.Mark) { c.Labels = policy.Join(c.Labels, result) }
