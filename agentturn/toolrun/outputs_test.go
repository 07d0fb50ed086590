package toolrun_test

import (
	"context"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
)

// An archive has one output, whose content retention has deleted.
type archive struct{}

func (archive) DescribeOutput(_ context.Context, turn turnkeeper.TurnID,
	id turnkeeper.OutputID) (turnkeeper.Output, error) {
	return turnkeeper.Output{ID: id, TurnID: turn, Chars: 9000, SizeBytes: 9000, ExpiredAt: time.Unix(1, 0)}, nil
}

func (archive) ReadOutput(context.Context, turnkeeper.TurnID, turnkeeper.OutputID, int64, int64) (string, error) {
	return "", turnkeeper.ErrNotFound
}

func (archive) NoteRetrieved(context.Context, turnkeeper.TurnID, turnkeeper.OutputID) error {
	return nil
}

// TestAnOutputThatHasExpired finds an output whose content is gone, of calls that succeeded and failed in the
// background.
func TestAnOutputThatHasExpired(t *testing.T) {
	for _, state := range []turnkeeper.CallState{turnkeeper.CallSucceeded, turnkeeper.CallFailed} {
		store := &toolrun.OutputStore{Stored: archive{}, MaxChars: 100, PageOf: func(string) int {
			return 100
		}, Calls: []turnkeeper.ToolCall{
			{Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, WireID: "c1", Name: "fetch", State: state, OutputID: "o1",
				Shown: outputs.Placeholder{ID: "o1", Tool: "fetch"}.Background()},
		}}
		for _, id := range []string{"c1", "o1"} {
			o, found, err := store.Find(t.Context(), id)
			if err != nil || !found || !o.Expired {
				t.Errorf("%s, %s: %+v, %v, %v", state, id, o, found, err)
			}
		}
	}
}

// A shelf has one output of one turn.
type shelf struct {
	turn   turnkeeper.TurnID
	output turnkeeper.OutputID
	noted  *int
}

func (s shelf) DescribeOutput(_ context.Context, turn turnkeeper.TurnID,
	id turnkeeper.OutputID) (turnkeeper.Output, error) {
	if turn != s.turn || id != s.output {
		return turnkeeper.Output{}, turnkeeper.ErrNotFound
	}
	return turnkeeper.Output{ID: id, TurnID: turn, Chars: 9, SizeBytes: 9}, nil
}

func (s shelf) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, _,
	_ int64) (string, error) {
	_, err := s.DescribeOutput(ctx, turn, id)
	return "the whole", err
}

func (s shelf) NoteRetrieved(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) error {
	*s.noted++
	_, err := s.DescribeOutput(ctx, turn, id)
	return err
}

// TestResultsOfEarlierTurns finds results of the earlier turns that a request may show, by all ids that it may show.
func TestResultsOfEarlierTurns(t *testing.T) {
	noted := 0
	call := func(ordinal int, wire string, output turnkeeper.OutputID) turnkeeper.ToolCall {
		return turnkeeper.ToolCall{Key: turnkeeper.CallKey{Round: 1, Ordinal: ordinal}, WireID: wire, Name: "fetch",
			State: turnkeeper.CallSucceeded, OutputID: output, Shown: "shown of " + wire}
	}
	past := func(turn turnkeeper.TurnID, calls ...turnkeeper.ToolCall) turnlog.Past {
		return turnlog.Past{TurnID: turn, Rounds: []turnkeeper.Round{{Number: 1, Calls: calls}}}
	}
	store := &toolrun.OutputStore{Turn: 9, Stored: shelf{5, "o5", &noted}, MaxChars: 100,
		PageOf: func(string) int { return 100 }, Calls: []turnkeeper.ToolCall{call(1, "own", "")},
		Past: []turnlog.Past{past(4, call(1, "a", ""), call(2, "", "")), past(5, call(1, "own", "o5"),
			call(2, "a", ""))},
	}
	for id, want := range map[string]string{
		"own": "shown of own", "o5": "the whole", "a": "shown of a", "turn-4-round-1-tool-1": "shown of a",
		"turn-5-round-1-tool-1": "the whole",
	} {
		o, found, err := store.Find(t.Context(), id)
		if err != nil || !found {
			t.Fatalf("%s: found %t, %v", id, found, err)
		}
		if text, err := o.Read(t.Context(), 0, 100); err != nil || text != want {
			t.Errorf("%s: %q, %v, want %q", id, text, err, want)
		}
		if err := o.Retrieved(t.Context()); err != nil {
			t.Error(id, err)
		}
	}
	if noted != 2 {
		t.Errorf("%d retrievals of the stored output are noted, want 2", noted)
	}
	for _, id := range []string{"", "o6", "round-1-tool-2", "turn-9-round-1-tool-1"} {
		if _, found, err := store.Find(t.Context(), id); found || err != nil {
			t.Errorf("%q: found %t, %v", id, found, err)
		}
	}
}
