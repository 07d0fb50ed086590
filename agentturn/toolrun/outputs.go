package toolrun

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Outputs reads the stored results of turns. Unknown outputs, and those of other turns than the one that is named,
// are turnkeeper.ErrNotFound. Implementations are safe for concurrent use.
type Outputs interface {
	// DescribeOutput returns an output of the turn without its content.
	DescribeOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) (turnkeeper.Output, error)
	// ReadOutput returns the characters [from, to) of an output of the turn. For binary
	// content it reads the description.
	ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from, to int64) (string, error)
	// NoteRetrieved increments the output's count of retrievals.
	NoteRetrieved(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) error
}

// An OutputStore gives a tool access to the results of the calls before it. It is safe for
// concurrent use.
type OutputStore struct {
	Turn      turnkeeper.TurnID
	Stored    Outputs
	Calls     []turnkeeper.ToolCall
	Past      []turnlog.Past        // earlier turns of the conversation, oldest first, whose results can be read too
	Runs      []*Run                // in the background, in the order of their calls
	MaxChars  int                   // maximum result of a tool that reads an output
	PageOf    func(tool string) int // characters of a page of a tool's result
	MaxTokens int64
	Search    func(ctx context.Context, from extract.Source, query string) (tools.Result, error)
}

// Find returns the result of a call by an id that prompt.IndexOf accepts, or an attached output by its id, or the
// result of a call of an earlier turn, by the id of its output or the one that requests show.
func (s *OutputStore) Find(ctx context.Context, id string) (o tools.Output, found bool, err error) {
	if i := prompt.IndexOf(s.Calls, id); i >= 0 {
		return s.result(ctx, s.Turn, s.Calls[i])
	}
	if o, found, err = s.attached(ctx, id); found || err != nil {
		return o, found, err
	}
	if turn, call := prompt.PastCall(s.Past, id); call != nil {
		return s.result(ctx, turn, *call)
	}
	return o, false, nil
}

// result returns the result of a call of a turn.
func (s *OutputStore) result(ctx context.Context, turn turnkeeper.TurnID,
	call turnkeeper.ToolCall) (o tools.Output, found bool, err error) {
	o = tools.Output{CallID: call.WireID, Tool: call.Name, MaxChars: s.PageOf(call.Name), MaxTokens: s.MaxTokens}
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
	stored, err := s.Stored.DescribeOutput(ctx, turn, call.OutputID)
	// its worker was lost and could store only a preview
	if errors.Is(err, turnkeeper.ErrNotFound) && prompt.WentOn(call) {
		if o.Failure = call.Preview; call.State == turnkeeper.CallSucceeded {
			o.Failure = ""
			shownWhole(&o, call.Preview)
		}
		return o, true, nil
	}
	if err != nil {
		return o, false, err
	}
	s.stored(&o, turn, call, stored)
	if prompt.WentOn(call) && call.State != turnkeeper.CallSucceeded && !o.Expired {
		o.Failure, err = o.Read(ctx, 0, int64(s.MaxChars))
	}
	s.extractable(&o, stored.SHA256)
	return o, true, err
}

// attached returns an output that was attached to the result of a call, by the output's id.
func (s *OutputStore) attached(ctx context.Context, id string) (o tools.Output, found bool, err error) {
	stored, err := s.Stored.DescribeOutput(ctx, s.Turn, turnkeeper.OutputID(id))
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return tools.Output{}, false, nil
	}
	if err != nil {
		return tools.Output{}, false, err
	}
	o = tools.Output{CallID: id, MaxChars: s.MaxChars, MaxTokens: s.MaxTokens}
	s.stored(&o, s.Turn, turnkeeper.ToolCall{WireID: id, OutputID: turnkeeper.OutputID(id),
		State: turnkeeper.CallSucceeded},
		stored)
	return o, true, nil
}

// extractable sets the output's Extract, unless it is binary.
func (s *OutputStore) extractable(o *tools.Output, sha256 string) {
	if o.Binary {
		return
	}
	from := extract.Source{
		ID: o.CallID, SHA256: sha256, Size: o.Chars, Bytes: o.Bytes, Tokens: o.Tokens, MaxChars: s.MaxChars,
		ReadText: o.Read,
	}
	o.Extract = func(ctx context.Context, query string) (tools.Result, error) { return s.Search(ctx, from, query) }
}

// shownWhole sets the fields of a result that was shown whole and is not stored separately.
func shownWhole(o *tools.Output, text string) {
	source := outputs.Text(text)
	o.Chars, o.Bytes, o.Unseen, o.Read = source.Chars(), int64(len(text)), source.Chars(), source.Read
	o.Retrieved = func(context.Context) error { return nil }
}

// stored sets the fields of a result of a turn that is stored as out.
func (s *OutputStore) stored(o *tools.Output, turn turnkeeper.TurnID, call turnkeeper.ToolCall, out turnkeeper.Output) {
	o.Chars, o.Bytes, o.Tokens, o.Binary = out.Chars, out.SizeBytes, out.Tokens, out.Description != ""
	o.Cut, o.Expired = out.Incomplete, !out.ExpiredAt.IsZero()
	if o.Binary {
		o.Chars = int64(utf8.RuneCountInString(out.Description))
	}
	o.Unseen = s.firstUnseen(call, o.Chars)
	o.Read = func(ctx context.Context, from, to int64) (string, error) {
		return s.Stored.ReadOutput(ctx, turn, call.OutputID, from, to)
	}
	o.Retrieved = func(ctx context.Context) error { return s.Stored.NoteRetrieved(ctx, turn, call.OutputID) }
}

// firstUnseen returns the position of the first character of a result that the model has
// not been shown. Pages count if they continue what was shown before.
func (s *OutputStore) firstUnseen(call turnkeeper.ToolCall, chars int64) int64 {
	seen := min(outputs.FirstPageChars(call.Shown), chars)
	page := int64(s.PageOf(call.Name))
	for _, read := range s.Calls {
		if read.Name != turnkeeper.ToolGetContinuation || read.State != turnkeeper.CallSucceeded {
			continue
		}
		asked, err := outputs.ParseContinuation([]byte(read.Arguments))
		if err != nil {
			continue
		}
		if i := prompt.IndexOf(s.Calls, asked.ID); i < 0 || s.Calls[i].Key != call.Key {
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

// Wait returns the calls that are done and that no earlier wait_for_tool_output has
// reported. If there are none, it waits for the first background run. anyRuns is false if
// nothing runs and nothing is unreported.
func (s *OutputStore) Wait(ctx context.Context) (done []tools.Finished, anyRuns bool, err error) {
	done, err = s.unreported(ctx)
	if err != nil || len(done) == 0 && len(s.Runs) == 0 {
		return nil, false, err
	}
	if len(done) == 0 {
		if err := awaitFirst(ctx, s.Runs); err != nil {
			return nil, true, err
		}
	}
	for _, r := range s.Runs {
		if r.IsOver() {
			done = append(done, tools.Finished{Tool: r.Call.Name, ID: r.ID, Bytes: sizeOf(r.Result.Result)})
		}
	}
	return done, true, nil
}

// sizeOf returns the stored size of a result, in bytes.
func sizeOf(r tools.Result) int64 {
	if taken, drafted := r.Kept.(outputs.Taken); drafted {
		return taken.Output.SizeBytes
	}
	return int64(len(r.Text) + len(r.Bytes))
}

// Unreported reports whether a background call has ended that no wait has reported.
func (s *OutputStore) Unreported() bool {
	return slices.ContainsFunc(s.Calls, func(c turnkeeper.ToolCall) bool {
		return prompt.WentOn(c) && c.State.Answered() && !s.reported(c.OutputID)
	})
}

// unreported returns the background calls that had ended when the OutputStore was made, and
// that no wait has reported.
func (s *OutputStore) unreported(ctx context.Context) (done []tools.Finished, err error) {
	for _, call := range s.Calls {
		if !prompt.WentOn(call) || !call.State.Answered() || s.reported(call.OutputID) {
			continue
		}
		stored, err := s.Stored.DescribeOutput(ctx, s.Turn, call.OutputID)
		if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) { // not found: its worker was lost
			return nil, err
		}
		done = append(done, tools.Finished{Tool: call.Name, ID: call.OutputID, Bytes: stored.SizeBytes})
	}
	return done, nil
}

// reported reports whether a wait has reported the output.
func (s *OutputStore) reported(id turnkeeper.OutputID) bool {
	return slices.ContainsFunc(s.Calls, func(c turnkeeper.ToolCall) bool {
		return c.Name == turnkeeper.ToolWaitForToolOutput && strings.Contains(c.Shown, "(id: "+string(id)+",")
	})
}
