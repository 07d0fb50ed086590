package transcript

import (
	"strings"
	"time"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/outputs"
)

// How long, and how much, streamed text waits for more before it is written.
const (
	flushAfter = 250 * time.Millisecond
	flushBytes = 1024
)

// A Stream turns the deltas of a round's model call into events. They are written with
// the answer, or, when it takes long, before it.
type Stream struct {
	*Transcript
	round int
	start RoundStartData

	started bool            // round_start is out for this attempt
	text    strings.Builder // text blocks of this attempt

	kind    inference.DeltaKind // of the open block; empty: none
	index   int
	number  int             // of the open block
	pending strings.Builder // of the open block, not yet an event
	waiting int             // bytes since the last write
	since   time.Time       // of the oldest of them
}

// NewStream makes the stream of a round, which start describes.
func (t *Transcript) NewStream(round int, start RoundStartData) *Stream {
	return &Stream{Transcript: t, round: round, start: start}
}

// Started reports whether a piece of this attempt's answer has come.
func (s *Stream) Started() bool { return s.started }

// Delta takes in a piece of the answer. It reports whether so much has come that it is to
// be flushed and written.
func (s *Stream) Delta(d inference.Delta) (due bool) {
	s.piece(d)
	return s.waiting >= flushBytes || s.waiting > 0 && time.Since(s.since) >= flushAfter
}

// Overdue returns a channel that fires when the oldest text that waits has waited long
// enough; nil: none waits.
func (s *Stream) Overdue() <-chan time.Time {
	if s.waiting == 0 {
		return nil
	}
	return time.After(time.Until(s.since.Add(flushAfter)))
}

// Flush makes an event of what waits, to be written now.
func (s *Stream) Flush() {
	s.emit()
	s.waiting = 0
}

func (s *Stream) piece(d inference.Delta) {
	s.open()
	if s.kind != d.Kind || s.index != d.Index {
		s.closeBlock()
		s.kind, s.index, s.number = d.Kind, d.Index, s.Block()
		s.Event(turnkeeper.EventBlockStart, s.round, s.number, BlockStartData{
			Kind: string(d.Kind), Tool: CleanName(d.Name),
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

// emit makes an event of what is pending.
func (s *Stream) emit() {
	if s.pending.Len() == 0 {
		return
	}
	s.Event(turnkeeper.EventBlockDelta, s.round, s.number, BlockDeltaData{Text: outputs.Clean(s.pending.String())})
	s.pending.Reset()
}

func (s *Stream) closeBlock() {
	if s.kind == "" {
		return
	}
	s.emit()
	s.Event(turnkeeper.EventBlockStop, s.round, s.number, nil)
	s.kind, s.index = "", 0
}

// Complete ends the stream of an answer, so that the text of its blocks is the answer's:
// one that did not stream, or streamed something else, is streamed from the answer.
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
		s.piece(inference.Delta{Kind: inference.DeltaThinking, Text: res.Reasoning})
	}
	if res.Text != "" {
		s.piece(inference.Delta{Kind: inference.DeltaText, Text: res.Text})
	}
	for i, call := range res.Calls {
		s.piece(inference.Delta{Kind: inference.DeltaTool, Index: i, Name: call.Name, Text: call.Arguments})
	}
}

// Rollback voids what this attempt has streamed.
func (s *Stream) Rollback(reason string) {
	if !s.started {
		return
	}
	s.closeBlock()
	s.Event(turnkeeper.EventRoundRollback, s.round, 0, RollbackData{Reason: reason})
	s.started, s.waiting = false, 0
	s.text.Reset()
}

const maxToolName = 100 // characters; no tool has a longer name

// CleanName returns a tool's name as a model wrote it, made fit to be stored and quoted.
func CleanName(name string) string {
	name = outputs.Clean(name)
	if utf8.RuneCountInString(name) > maxToolName {
		name = string([]rune(name)[:maxToolName])
	}
	return name
}
