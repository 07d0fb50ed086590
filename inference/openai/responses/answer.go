package responses

import (
	"cmp"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/responsesbody"
	"turnkeeper/internal/jsonlimit"
)

// An answer collects the events of a stream, or one response.
type answer struct {
	id, model string
	items     []*item // that came in pieces, in the order of arrival
	calls     int     // their calls
	parts     int     // of their messages
	text      strings.Builder
	speech    *inference.Speech
	reasoning loose.Growing
	thinking  *item // whose reasoning came last

	output   []responsesbody.Item // of the whole response, or of its pieces
	final    []finalCall
	raw      json.RawMessage
	refusal  string
	finish   string
	cut      bool // the answer may lack its end
	usage    turnkeeper.Usage
	reported bool // usage was reported
	doubt    string

	tools   []inference.ToolDefinition
	onDelta func(inference.Delta)
}

// Limits of an answer. Package jsonlimit bounds its bytes and depth.
const (
	maxCalls = 2000
	maxItems = 2000 // each event is compared with them
	maxParts = 2000 // of all messages
)

// Reasons for Response.Doubt.
const (
	doubtStreamed  = "a call was streamed with another name, id or arguments than the whole answer has"
	doubtMissing   = "a call was streamed that the whole answer lacks"
	doubtText      = "the text was streamed otherwise than the whole answer has it"
	doubtOpen      = "the end of a call's arguments did not arrive"
	doubtArguments = "a call has no arguments"
	doubtNameless  = "a call has no name"
	doubtTwice     = "the answer has the same call twice"
	doubtEncoding  = "the answer has bytes that are not UTF-8"
	doubtFinish    = "the status of the answer is unknown: it may have been cut"
	doubtMarkup    = "the server parsed a part of the calls, and another stands in the text"
	doubtOtherTool = "the answer has a call of a kind that nothing was declared of"
)

func newAnswer(tools []inference.ToolDefinition, habit *inference.Habit, onDelta func(inference.Delta)) *answer {
	if onDelta == nil {
		onDelta = func(inference.Delta) {}
	}
	a := &answer{onDelta: onDelta, tools: tools}
	a.speech = inference.NewSpeech(habit, len(tools) > 0, a.spoke)
	return a
}

// doubted records why the calls may not be those of the model.
func (a *answer) doubted(why string) { a.doubt = cmp.Or(a.doubt, why) }

func (a *answer) checkEncoding(data []byte) {
	if !utf8.Valid(data) {
		a.doubted(doubtEncoding)
	}
}

// add adds an event that does not end the response. It returns the limit that the answer exceeds; nil: none.
func (a *answer) add(e event) error {
	switch e.Type {
	case typeCreated:
		a.head(e.Response)
	case typeItemAdded, typeItemDone:
		item, ok := responsesbody.ReadItem(e.Item)
		if !ok {
			return nil
		}
		e.ItemID = loose.Text(loose.Scalar(item.Members["id"]))
		if to := a.itemFor(e, item.Type); e.Type == typeItemAdded {
			a.begin(to, item)
		} else {
			a.complete(to, item)
		}
	case typeText:
		a.say(a.itemFor(e, responsesbody.TypeMessage), e.ContentIndex, loose.FragmentOf(e.Delta))
	case typeTextDone:
		if to := a.itemFor(e, responsesbody.TypeMessage); a.part(to, e.ContentIndex).Len() == 0 {
			a.say(to, e.ContentIndex, loose.FragmentOf(e.Text))
		}
	case typeRefusal:
		a.itemFor(e, responsesbody.TypeMessage).refusal.Add(loose.FragmentOf(e.Delta))
	case typeThought, typeSummary, "response.reasoning.delta", "response.reasoning_summary.delta":
		to := a.itemFor(e, responsesbody.TypeReasoning)
		a.think(to, string(e.Type), max(e.ContentIndex, e.SummaryIndex), loose.FragmentOf(e.Delta))
	case typeArguments:
		a.argue(a.itemFor(e, responsesbody.TypeCall), e)
	case typeArgumentsDone:
		to := a.itemFor(e, responsesbody.TypeCall)
		to.name = cmp.Or(to.name, string(e.Name))
		a.argued(to, e.Arguments)
		a.tellDone(to)
	}
	switch {
	case len(a.items) > maxItems:
		return &jsonlimit.LimitError{What: "items", Max: maxItems}
	case a.parts > maxParts:
		return &jsonlimit.LimitError{What: "parts", Max: maxParts}
	case a.calls > maxCalls:
		return &jsonlimit.LimitError{What: "tool calls", Max: maxCalls}
	}
	return nil
}

// head takes what a response says of itself.
func (a *answer) head(response json.RawMessage) {
	var r struct {
		ID    loose.Text `json:"id"`
		Model loose.Text `json:"model"`
	}
	_ = json.Unmarshal(response, &r) // it may be missing
	a.id, a.model = cmp.Or(string(r.ID), a.id), cmp.Or(string(r.Model), a.model)
}

// say adds a piece of a message's text.
func (a *answer) say(to *item, index loose.Count, f loose.Fragment) {
	text := a.part(to, index).Add(f)
	if text == "" {
		return
	}
	if !to.spoke && a.text.Len() > 0 {
		text = responsesbody.Paragraph + text
	}
	to.spoke = true
	a.text.WriteString(text)
	a.speech.Add(text)
}

// think adds a piece of an item's reasoning. Of several forms of it, the first one counts.
func (a *answer) think(to *item, form string, index loose.Count, f loose.Fragment) {
	if to.thinks != "" && to.thinks != form || f == "" {
		return
	}
	a.speech.Reasoned()
	if a.reasoning.Len() > 0 && (a.thinking != to || to.thought != index) {
		a.pass(inference.DeltaThinking, a.reasoning.Add(responsesbody.Paragraph))
	}
	a.thinking, to.thinks, to.thought = to, form, index
	a.pass(inference.DeltaThinking, a.reasoning.Add(f))
}

// spoke takes a part of the text: what the model says, or thinks.
func (a *answer) spoke(kind inference.DeltaKind, text string) {
	if kind == inference.DeltaThinking {
		text = a.reasoning.Add(loose.Fragment(text))
	}
	a.pass(kind, text)
}

func (a *answer) pass(kind inference.DeltaKind, text string) {
	if text != "" {
		a.onDelta(inference.Delta{Kind: kind, Text: text})
	}
}

// argue adds a piece of a call's arguments.
func (a *answer) argue(to *item, e event) {
	if to.closed {
		if loose.FragmentOf(e.Delta) != "" {
			a.doubted(doubtStreamed)
		}
		return
	}
	to.name = cmp.Or(to.name, string(e.Name))
	to.given = to.given || !loose.IsNull(e.Delta)
	to.arguments.Add(loose.Arguments(e.Delta))
	a.announce(to)
}

// argued takes the whole arguments of a call. They may be missing.
func (a *answer) argued(to *item, arguments json.RawMessage) {
	if loose.IsNull(arguments) {
		to.closed = to.closed || to.given
		return
	}
	whole := loose.Growing{Alone: loose.Escaped}
	whole.Add(loose.Arguments(arguments))
	whole.End()
	given := to.arguments.String()
	switch {
	case to.mixed, to.closed && whole.String() == given:
		return
	case !to.given, strings.HasPrefix(whole.String(), given) && !to.closed:
	default:
		if to.meaning == "" {
			to.meaning = loose.Compact(given)
		}
		if to.closed = true; loose.Compact(whole.String()) == to.meaning {
			return
		}
		a.doubted(doubtStreamed)
		to.mixed = true
	}
	to.given, to.closed = true, true
	to.arguments = loose.Growing{Alone: loose.Escaped}
	to.arguments.Add(loose.Fragment(whole.String()))
	a.announce(to)
}

// tellDone passes on that a call has come whole.
func (a *answer) tellDone(call *item) {
	if call.announced && call.closed && !call.mixed {
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: call.ordinal, Done: true})
	}
}

// announce passes on the name and the new arguments of a call. The name comes first.
func (a *answer) announce(call *item) {
	if call.name == "" || call.mixed {
		return
	}
	if !call.announced {
		call.announced = true
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: call.ordinal, Name: call.name})
	}
	if rest := call.arguments.String()[call.sent:]; rest != "" {
		call.sent += len(rest)
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: call.ordinal, Text: rest})
	}
}
