package turnevents

import (
	"strings"
	"time"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/outputs"
)

// Streamed text is written when it is this old or this long.
const (
	flushAfter = 250 * time.Millisecond
	flushBytes = 1024
)

// A Stream turns the deltas of a round's model call into events. They are written with the
// answer, or before it if it takes long.
type Stream struct {
	*Builder
	round int
	start RoundStartData
	sink  Sink

	started bool            // this attempt has a round_start event
	text    strings.Builder // text blocks of this attempt

	kind    inference.DeltaKind // of the open block; empty: none is open
	index   int
	number  int             // of the open block
	pending strings.Builder // text of the open block that has no event yet
	waiting int             // bytes since the last flush
	since   time.Time       // when the oldest of them came
}

// A Sink says what of a stream those may see who may only send to the agent.
type Sink struct {
	Guarded bool                   // no text, because the agent's reply_sink may hold the reply back
	Known   func(name string) bool // reports whether the agent has a tool: other names are the model's own text
}

// NewStream returns the stream of a round. start is the data of its round_start event.
func (b *Builder) NewStream(round int, start RoundStartData, sink Sink) *Stream {
	return &Stream{Builder: b, round: round, start: start, sink: sink}
}

// Sending takes note of the epoch that begins with the request of the next attempt; nil: it goes on with one.
func (s *Stream) Sending(start *turnkeeper.Epoch) {
	s.start.Epoch = ""
	if start != nil {
		s.start.Epoch = start.Reason
	}
}

// Started reports whether this attempt has had a delta.
func (s *Stream) Started() bool { return s.started }

// Text returns the text of the answer so far in this attempt, without reasoning and calls.
func (s *Stream) Text() string { return s.text.String() }

// Delta adds a delta. It reports whether the text should be flushed and written now.
func (s *Stream) Delta(d inference.Delta) (due bool) {
	s.add(d)
	return s.waiting >= flushBytes || s.waiting > 0 && time.Since(s.since) >= flushAfter
}

// Overdue returns a channel that fires when buffered text is due. It is nil if there is
// none.
func (s *Stream) Overdue() <-chan time.Time {
	if s.waiting == 0 {
		return nil
	}
	return time.After(time.Until(s.since.Add(flushAfter)))
}

// Flush adds an event with the buffered text. The owner should write it now.
func (s *Stream) Flush() {
	s.emit()
	s.waiting = 0
}

func (s *Stream) add(d inference.Delta) {
	s.open()
	if s.kind != d.Kind || s.index != d.Index {
		s.closeBlock()
		s.kind, s.index, s.number = d.Kind, d.Index, s.Block()
		s.Event(turnkeeper.EventBlockStart, s.round, s.number, BlockStartData{
			Kind: string(d.Kind), Tool: CleanName(d.Name), Unknown: d.Kind == inference.DeltaTool &&
				!s.sink.Known(d.Name),
		})
	}
	if d.Text == "" {
		return
	}
	if s.waiting == 0 {
		s.since = time.Now()
	}
	s.waiting += len(d.Text)
	s.pending.WriteString(d.Text)
	if d.Kind == inference.DeltaText {
		s.text.WriteString(d.Text)
	}
}

func (s *Stream) open() {
	if s.started {
		return
	}
	s.started = true
	s.Event(turnkeeper.EventRoundStart, s.round, 0, s.start)
}

// emit adds an event with the pending text.
func (s *Stream) emit() {
	if s.pending.Len() == 0 {
		return
	}
	s.Event(turnkeeper.EventBlockDelta, s.round, s.number, s.data(outputs.Clean(s.pending.String())))
	s.pending.Reset()
}

// data returns the data of a delta of the open block.
func (s *Stream) data(text string) BlockDeltaData {
	switch s.kind {
	case inference.DeltaText:
		return BlockDeltaData{Text: text, Guarded: s.sink.Guarded}
	case inference.DeltaThinking:
		return BlockDeltaData{Thinking: text}
	default:
		return BlockDeltaData{Arguments: text}
	}
}

func (s *Stream) closeBlock() {
	if s.kind == "" {
		return
	}
	s.emit()
	s.Event(turnkeeper.EventBlockStop, s.round, s.number, nil)
	s.kind, s.index = "", 0
}

// Complete ends the stream. If the answer was not streamed, or differs from the streamed
// text, Complete adds the answer's blocks, so that the events always contain the answer.
func (s *Stream) Complete(res inference.Response) {
	if s.started && s.text.String() != res.Text {
		s.Rollback("the answer differs from what was streamed")
	}
	if !s.started {
		s.replay(res)
	}
	s.closeBlock()
}

func (s *Stream) replay(res inference.Response) {
	s.open()
	if res.Reasoning != "" {
		s.add(inference.Delta{Kind: inference.DeltaThinking, Text: res.Reasoning})
	}
	if res.Text != "" {
		s.add(inference.Delta{Kind: inference.DeltaText, Text: res.Text})
	}
	for i, call := range res.Calls {
		s.add(inference.Delta{Kind: inference.DeltaTool, Index: i, Name: call.Name, Text: call.Arguments})
	}
}

// Rollback voids the events of this attempt.
func (s *Stream) Rollback(reason string) {
	if !s.started {
		return
	}
	s.closeBlock()
	s.Event(turnkeeper.EventRoundRollback, s.round, 0, RollbackData{Reason: reason})
	s.started, s.waiting = false, 0
	s.text.Reset()
}

const maxToolName = 100 // characters; the maximum for a tool

// CleanName returns a model's name of a tool, cleaned and shortened for storing.
func CleanName(name string) string {
	name = outputs.Clean(name)
	if utf8.RuneCountInString(name) > maxToolName {
		name = string([]rune(name)[:maxToolName])
	}
	return name
}
