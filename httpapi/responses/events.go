package responses

import (
	"unicode/utf8"

	"turnkeeper/storage/operate"
)

// An event is an event of a response's stream.
type event struct {
	Type         string      `json:"type"`
	Number       int64       `json:"sequence_number"`
	Response     *Response   `json:"response,omitempty"`
	OutputIndex  *int        `json:"output_index,omitempty"`
	Item         *item       `json:"item,omitempty"`
	ItemID       string      `json:"item_id,omitempty"`
	ContentIndex *int        `json:"content_index,omitempty"`
	Part         *part       `json:"part,omitempty"`
	Delta        string      `json:"delta,omitempty"`
	Text         *string     `json:"text,omitempty"`
	Logprobs     *[]struct{} `json:"logprobs,omitempty"`
}

// pieceBytes is the maximum length of a delta. Changing it, or the order of events, changes the
// numbers of events that clients may resume from.
const pieceBytes = 1024

// eventsOf returns all events of a response so far, numbered from 0. They depend only on the stored
// state; progress appends events and changes none. Those of a response with drafts also depend on the
// events of its turns: see drafts.
func eventsOf(r operate.Response) []event {
	s := begin(r)
	if statusOf(r) != statusQueued {
		s.progress()
	}
	s.end(r)
	return s.events
}

// A series is the events of a response so far.
type series struct {
	r           operate.Response
	events      []event
	progressing bool // response.in_progress is among them
	items       int  // output items so far
}

// begin returns the first events of a response.
func begin(r operate.Response) *series {
	s := &series{r: r}
	s.lifecycle("response.created", openView(r, statusQueued))
	s.lifecycle("response.queued", openView(r, statusQueued))
	return s
}

// progress adds the event that a turn has begun, once.
func (s *series) progress() {
	if !s.progressing {
		s.progressing = true
		s.lifecycle("response.in_progress", openView(s.r, statusInProgress))
	}
}

// end adds the last events, if the response has ended.
func (s *series) end(r operate.Response) {
	if r.Outcome == "" {
		return
	}
	s.r = r
	s.progress()
	status := statusOf(r)
	if status == statusCompleted || status == statusIncomplete {
		at := s.open(outputID(r.Message.ID), phaseFinal)
		at.write(r.Reply)
		at.close(status, phaseFinal, r.Reply)
	}
	s.terminal(viewOf(r))
}

// terminal adds the last event.
func (s *series) terminal(view Response) {
	switch view.Status {
	case statusCompleted, statusFailed:
		s.lifecycle("response."+view.Status, view)
	default: // cancelled: the API has no event for it; the status in the event says it
		s.lifecycle("response.incomplete", view)
	}
}

func (s *series) add(e event) {
	e.Number = int64(len(s.events))
	s.events = append(s.events, e)
}

func (s *series) lifecycle(kind string, view Response) { s.add(event{Type: kind, Response: &view}) }

// An output is an item of the output whose events are added.
type output struct {
	s     *series
	id    string
	index int
}

// open adds an item. An empty phase is not known yet.
func (s *series) open(id, phase string) *output {
	o := &output{s, id, s.items}
	s.items++
	s.add(event{Type: "response.output_item.added", OutputIndex: &o.index,
		Item: new(messageOfAgent(id, statusInProgress, phase))})
	o.add("response.content_part.added", func(e *event) { e.Part = new(text("")) })
	return o
}

func (o *output) add(kind string, set func(*event)) {
	e := event{Type: kind, OutputIndex: &o.index, ItemID: o.id, ContentIndex: new(0)}
	set(&e)
	o.s.add(e)
}

// write adds the deltas of a text.
func (o *output) write(all string) {
	for _, piece := range pieces(all) {
		o.add("response.output_text.delta", func(e *event) { e.Delta, e.Logprobs = piece, &[]struct{}{} })
	}
}

// close adds the events of the item's end. all is its whole text.
func (o *output) close(status, phase, all string) {
	o.add("response.output_text.done", func(e *event) { e.Text, e.Logprobs = &all, &[]struct{}{} })
	o.add("response.content_part.done", func(e *event) { e.Part = new(text(all)) })
	o.s.add(event{Type: "response.output_item.done", OutputIndex: &o.index,
		Item: new(messageOfAgent(o.id, status, phase, text(all)))})
}

func messageOfAgent(id, status, phase string, content ...part) item {
	return item{id, "message", "assistant", status, phase, append([]part{}, content...)}
}

// pieces splits a text into pieces of at most pieceBytes, between characters.
func pieces(text string) (all []string) {
	for len(text) > pieceBytes {
		cut := pieceBytes
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		all, text = append(all, text[:cut]), text[cut:]
	}
	if text != "" {
		all = append(all, text)
	}
	return all
}
