package agentturn

import (
	"context"
	"errors"
	"maps"
	"slices"
	"turnkeeper/agentturn/prompt"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/agentturn/extract"
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

// A shelf is what a tool may read: the results of the calls there were when it
// was called. It may be used by several goroutines.
type shelf struct {
	turn      turnkeeper.TurnID
	store     Outputs
	calls     []turnkeeper.ToolCall
	jobs      []*job                // in the background, as the calls are asked for
	maxChars  int                   // of what reads an output
	pageOf    func(tool string) int // characters of a page of a tool's result
	maxTokens int64
	extract   func(ctx context.Context, from extract.Source, query string) (tools.Result, error)
}

func (t *turn) shelf(used *meter) tools.Outputs {
	if t.cfg.Outputs == nil {
		return nil
	}
	s := &shelf{
		turn: t.record.Turn.ID, store: t.cfg.Outputs, calls: t.calls(),
		maxChars: t.bounds.MaxToolResultChars, pageOf: t.offered.MaxChars, maxTokens: int64(t.bounds.AsyncTokenThreshold),
		extract: func(ctx context.Context, from extract.Source, query string) (tools.Result, error) {
			return t.extract(ctx, from, query, used)
		},
	}
	for _, key := range slices.SortedFunc(maps.Keys(t.jobs), turnkeeper.CallKey.Compare) {
		s.jobs = append(s.jobs, t.jobs[key])
	}
	return s
}

// Find is the result of a call by any of its names.
func (s *shelf) Find(ctx context.Context, id string) (o tools.Output, found bool, err error) {
	i := prompt.IndexOf(s.calls, id)
	if i < 0 {
		return s.attached(ctx, id)
	}
	call := s.calls[i]
	o = tools.Output{CallID: call.WireID, Tool: call.Name, MaxChars: s.pageOf(call.Name), MaxTokens: s.maxTokens}
	switch {
	case call.State == turnkeeper.CallRunning:
		o.Running = true
		return o, true, nil
	case !call.State.Answered():
		return tools.Output{}, false, nil
	case call.OutputID == "":
		shownWhole(&o, call.Shown)
		s.extractable(&o, outputs.SHA256(call.Shown))
		return o, true, nil
	}
	stored, err := s.store.DescribeOutput(ctx, s.turn, call.OutputID)
	if errors.Is(err, turnkeeper.ErrNotFound) && prompt.WentOn(call) { // its worker was lost, and only told of it
		if o.Failure = call.Preview; call.State == turnkeeper.CallSucceeded {
			o.Failure = ""
			shownWhole(&o, call.Preview)
		}
		return o, true, nil
	}
	if err != nil {
		return o, false, err
	}
	s.stored(&o, call, stored)
	if prompt.WentOn(call) && call.State != turnkeeper.CallSucceeded {
		o.Failure, err = o.Read(ctx, 0, int64(s.maxChars))
	}
	s.extractable(&o, stored.SHA256)
	return o, true, err
}

// attached is an output that came with the result of a call, by its own id.
func (s *shelf) attached(ctx context.Context, id string) (o tools.Output, found bool, err error) {
	stored, err := s.store.DescribeOutput(ctx, s.turn, turnkeeper.OutputID(id))
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return tools.Output{}, false, nil
	}
	if err != nil {
		return tools.Output{}, false, err
	}
	o = tools.Output{CallID: id, MaxChars: s.maxChars, MaxTokens: s.maxTokens}
	s.stored(&o, turnkeeper.ToolCall{WireID: id, OutputID: turnkeeper.OutputID(id), State: turnkeeper.CallSucceeded}, stored)
	return o, true, nil
}

// extractable lets an output be searched by a model.
func (s *shelf) extractable(o *tools.Output, sha256 string) {
	if o.Binary {
		return
	}
	from := extract.Source{
		ID: o.CallID, SHA256: sha256, Size: o.Chars, Bytes: o.Bytes, Tokens: o.Tokens, MaxChars: s.maxChars, ReadText: o.Read,
	}
	o.Extract = func(ctx context.Context, query string) (tools.Result, error) { return s.extract(ctx, from, query) }
}

// shownWhole is a result that was shown whole and is kept as that.
func shownWhole(o *tools.Output, text string) {
	source := outputs.Text(text)
	o.Chars, o.Bytes, o.Unseen, o.Read = source.Chars(), int64(len(text)), source.Chars(), source.Read
	o.Retrieved = func(context.Context) error { return nil }
}

func (s *shelf) stored(o *tools.Output, call turnkeeper.ToolCall, out turnkeeper.Output) {
	o.Chars, o.Bytes, o.Tokens, o.Binary = out.Chars, out.SizeBytes, out.Tokens, out.Description != ""
	o.Cut = out.Incomplete
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
	seen := min(outputs.FirstPageChars(call.Shown), chars)
	page := int64(s.pageOf(call.Name))
	for _, read := range s.calls {
		if read.Name != turnkeeper.ToolGetContinuation || read.State != turnkeeper.CallSucceeded {
			continue
		}
		asked, err := outputs.ParseContinuation([]byte(read.Arguments))
		if err != nil {
			continue
		}
		if i := prompt.IndexOf(s.calls, asked.ID); i < 0 || s.calls[i].Key != call.Key {
			continue
		}
		from := seen
		if asked.Offset != nil {
			from = *asked.Offset
		}
		if from <= seen {
			seen = max(seen, min(from+page, chars))
		}
	}
	return seen
}
