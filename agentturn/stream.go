package agentturn

import (
	"context"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/outputs"
)

// How long, and how much, streamed text waits for more before it is written.
const (
	flushAfter = 250 * time.Millisecond
	flushBytes = 1024
)

// A stream turns the deltas of a round's model call into events. They are
// written with the answer, or, when it takes long, before it.
type stream struct {
	t     *turn
	ctx   context.Context //nolint:containedctx // of the one model call that the stream lives for
	round int
	final bool
	stop  context.CancelCauseFunc // ends the model call
	err   error                   // why events could not be written; the call is over

	started bool            // round_start is out for this attempt
	text    strings.Builder // text blocks of this attempt

	kind    inference.DeltaKind // of the open block; empty: none
	index   int
	block   int
	pending strings.Builder // of the open block, not yet an event
	waiting int             // bytes since the last write
	since   time.Time       // of the oldest of them
}

// delta takes in a piece of the answer.
func (s *stream) delta(d inference.Delta) {
	if s.err != nil {
		return
	}
	s.pass()
	s.piece(d)
	if s.waiting >= flushBytes || s.waiting > 0 && time.Since(s.since) >= flushAfter {
		s.flush()
	}
}

// pass notes that a piece has come.
func (s *stream) pass() {
	point := PointModelMore
	if !s.started {
		point = PointModelFirst
	}
	s.t.at(s.ctx, point)
}

func (s *stream) piece(d inference.Delta) {
	s.open()
	if s.kind != d.Kind || s.index != d.Index {
		s.closeBlock()
		s.kind, s.index, s.block = d.Kind, d.Index, s.t.newBlock()
		s.t.event(turnkeeper.EventBlockStart, s.round, s.block, BlockStartData{
			Kind: string(d.Kind), Tool: cleanName(d.Name),
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

func (s *stream) open() {
	if s.started {
		return
	}
	s.started = true
	s.t.event(turnkeeper.EventRoundStart, s.round, 0, RoundStartData{Of: s.t.bounds.MaxRounds, Final: s.final})
}

// flush writes the events so far by themselves.
func (s *stream) flush() {
	s.emit()
	if err := s.t.commit(s.ctx); err != nil {
		s.err = err
		s.stop(err)
	}
	s.waiting = 0
}

// emit makes an event of what is pending.
func (s *stream) emit() {
	if s.pending.Len() == 0 {
		return
	}
	s.t.event(turnkeeper.EventBlockDelta, s.round, s.block, BlockDeltaData{Text: outputs.Clean(s.pending.String())})
	s.pending.Reset()
}

func (s *stream) closeBlock() {
	if s.kind == "" {
		return
	}
	s.emit()
	s.t.event(turnkeeper.EventBlockStop, s.round, s.block, nil)
	s.kind, s.index = "", 0
}

// complete ends the stream of an answer, so that the text of its blocks is the
// answer's: one that did not stream, or streamed something else, is streamed
// from the answer.
func (s *stream) complete(res inference.Response) {
	if s.started && s.text.String() != res.Text {
		s.rollback("the answer differs from what was streamed")
	}
	if !s.started {
		s.replay(res)
	}
	s.closeBlock()
}

func (s *stream) replay(res inference.Response) {
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

// rollback voids what this attempt has streamed.
func (s *stream) rollback(reason string) {
	if !s.started {
		return
	}
	s.closeBlock()
	s.t.event(turnkeeper.EventRoundRollback, s.round, 0, RollbackData{Reason: reason})
	s.started, s.waiting = false, 0
	s.text.Reset()
}

// abandonAttempt voids what the model call under way has streamed, for another
// attempt.
func (t *turn) abandonAttempt(reason string) {
	if t.stream != nil {
		t.stream.rollback(reason)
	}
}

// abandonStream does so for good.
func (t *turn) abandonStream(reason string) {
	t.abandonAttempt(reason)
	t.stream = nil
}
