package agentturn

import (
	"context"
	"slices"
	"strconv"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Outputs reads the stored results of a turn. Implementations are safe for
// concurrent use.
type Outputs interface {
	// DescribeOutput is an output of the turn without its content.
	DescribeOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) (turnkeeper.Output, error)
	// ReadOutput returns the characters of an output of the turn from one position
	// up to another; of binary content, those of its description.
	ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from, to int64) (string, error)
	// NoteRetrieved counts that something of it was read.
	NoteRetrieved(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) error
}

// readers are the tools that read stored results. They are offered to every
// agent whose turn has something that they could read.
var readers = []string{turnkeeper.ToolGetContinuation, turnkeeper.ToolGetToolOutput}

// pages says that the model can read on where a result was cut.
func (t *turn) pages() bool {
	_, known := t.offered.Get(turnkeeper.ToolGetContinuation)
	return known && t.bounds.Paging && t.cfg.Outputs != nil
}

// anyStored says that a result of this turn has a stored output.
func (t *turn) anyStored() bool {
	return slices.ContainsFunc(t.calls(), func(c turnkeeper.ToolCall) bool { return c.OutputID != "" })
}

// A shelf is what a tool may read: the results of the calls there were when it
// was called. It may be used by several goroutines.
type shelf struct {
	turn     turnkeeper.TurnID
	store    Outputs
	calls    []turnkeeper.ToolCall
	maxChars int
}

func (t *turn) shelf() tools.Outputs {
	if t.cfg.Outputs == nil {
		return nil
	}
	return &shelf{turn: t.record.Turn.ID, store: t.cfg.Outputs, calls: t.calls(), maxChars: t.bounds.MaxToolResultChars}
}

// Find is the result of a call by any of its names.
func (s *shelf) Find(ctx context.Context, id string) (o tools.Output, found bool, err error) {
	i := s.index(id)
	if i < 0 || !s.calls[i].State.Answered() {
		return tools.Output{}, false, nil
	}
	call := s.calls[i]
	o = tools.Output{CallID: call.WireID, Tool: call.Name, MaxChars: s.maxChars}
	if call.OutputID == "" {
		shownWhole(&o, call.Shown)
		return o, true, nil
	}
	stored, err := s.store.DescribeOutput(ctx, s.turn, call.OutputID)
	if err != nil {
		return o, false, err
	}
	s.stored(&o, call, stored)
	return o, true, nil
}

// index is the call that an id means: first as the provider's client knows it,
// then as the output's, then as the call's number in the turn.
func (s *shelf) index(id string) int {
	if i := slices.IndexFunc(s.calls, func(c turnkeeper.ToolCall) bool { return c.WireID == id }); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(s.calls, func(c turnkeeper.ToolCall) bool {
		return c.OutputID != "" && string(c.OutputID) == id || c.Key.String() == id
	}); i >= 0 {
		return i
	}
	if n, err := strconv.Atoi(id); err == nil && n >= 1 && n <= len(s.calls) {
		return n - 1
	}
	return -1
}

// shownWhole is a result that was shown whole and is kept as that.
func shownWhole(o *tools.Output, text string) {
	source := outputs.Text(text)
	o.Chars, o.Bytes, o.Unseen, o.Read = source.Chars(), int64(len(text)), source.Chars(), source.Read
	o.Retrieved = func(context.Context) error { return nil }
}

func (s *shelf) stored(o *tools.Output, call turnkeeper.ToolCall, out turnkeeper.Output) {
	o.Chars, o.Bytes, o.Tokens, o.Binary = out.Chars, out.SizeBytes, out.Tokens, out.Description != ""
	if o.Binary {
		o.Chars = int64(utf8.RuneCountInString(out.Description))
	}
	o.Unseen = s.unseen(call, o.Chars)
	o.Read = func(ctx context.Context, from, to int64) (string, error) {
		return s.store.ReadOutput(ctx, s.turn, call.OutputID, from, to)
	}
	o.Retrieved = func(ctx context.Context) error { return s.store.NoteRetrieved(ctx, s.turn, call.OutputID) }
}

// unseen is the first character of a result that the model has not been shown:
// after the first page, and after every later one that went on from there.
func (s *shelf) unseen(call turnkeeper.ToolCall, chars int64) int64 {
	seen := min(int64(s.maxChars), chars)
	for _, page := range s.calls {
		if page.Name != turnkeeper.ToolGetContinuation || page.State != turnkeeper.CallSucceeded {
			continue
		}
		asked, err := outputs.ParseContinuation([]byte(page.Arguments))
		if err != nil {
			continue
		}
		if i := s.index(asked.ID); i < 0 || s.calls[i].Key != call.Key {
			continue
		}
		from := seen
		if asked.Offset != nil {
			from = *asked.Offset
		}
		if from <= seen {
			seen = max(seen, min(from+int64(s.maxChars), chars))
		}
	}
	return seen
}
