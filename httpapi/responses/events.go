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
// state; progress appends events and changes none.
func eventsOf(r operate.Response) []event {
	s := series{r: r}
	s.lifecycle("response.created", openView(r, statusQueued))
	s.lifecycle("response.queued", openView(r, statusQueued))
	status := statusOf(r)
	if status == statusQueued {
		return s.events
	}
	s.lifecycle("response.in_progress", openView(r, statusInProgress))
	switch status {
	case statusCompleted:
		s.reply(status)
		s.lifecycle("response.completed", viewOf(r))
	case statusIncomplete:
		s.reply(status)
		s.lifecycle("response.incomplete", viewOf(r))
	case statusCancelled: // the API has no event for it; the status in the event says it
		s.lifecycle("response.incomplete", viewOf(r))
	case statusFailed:
		s.lifecycle("response.failed", viewOf(r))
	}
	return s.events
}

type series struct {
	r      operate.Response
	events []event
}

func (s *series) add(e event) {
	e.Number = int64(len(s.events))
	s.events = append(s.events, e)
}

func (s *series) lifecycle(kind string, view Response) { s.add(event{Type: kind, Response: &view}) }

// reply adds the events of a streamed reply.
func (s *series) reply(status string) {
	at := event{OutputIndex: new(0), ItemID: outputOf(s.r, "").ID, ContentIndex: new(0)}
	begun, whole := outputOf(s.r, statusInProgress), outputOf(s.r, status, text(s.r.Reply))
	s.add(event{Type: "response.output_item.added", OutputIndex: new(0), Item: &begun})
	s.add(with(at, "response.content_part.added", func(e *event) { e.Part = new(text("")) }))
	for _, piece := range pieces(s.r.Reply) {
		s.add(with(at, "response.output_text.delta", func(e *event) { e.Delta, e.Logprobs = piece, &[]struct{}{} }))
	}
	s.add(with(at, "response.output_text.done", func(e *event) { e.Text, e.Logprobs = &s.r.Reply, &[]struct{}{} }))
	s.add(with(at, "response.content_part.done", func(e *event) { e.Part = new(text(s.r.Reply)) }))
	s.add(event{Type: "response.output_item.done", OutputIndex: new(0), Item: &whole})
}

func with(e event, kind string, set func(*event)) event {
	e.Type = kind
	set(&e)
	return e
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
