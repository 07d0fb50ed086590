package toolrun_test

import (
	"context"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
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
