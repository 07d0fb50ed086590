package transcript_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/inference"
)

func types(events []turnkeeper.Event) (types []string) {
	for _, e := range events {
		types = append(types, string(e.Type)+" "+string(e.Data))
	}
	return types
}

// TestAnAnswerThatDiffers checks that an answer that differs from the streamed text is
// streamed again, in new blocks.
func TestAnAnswerThatDiffers(t *testing.T) {
	events := transcript.New(7, 3)
	s := events.NewStream(1, transcript.RoundStartData{Of: 12}, transcript.Sink{})
	s.Delta(inference.Delta{Kind: inference.DeltaText, Text: "wro"})
	s.Complete(inference.Response{Text: "right"})
	want := []string{
		`round_start {"of":12}`, `block_start {"kind":"text"}`, `block_delta {"text":"wro"}`, `block_stop `,
		`round_rollback {"reason":"the answer differs from what was streamed"}`,
		`round_start {"of":12}`, `block_start {"kind":"text"}`, `block_delta {"text":"right"}`, `block_stop `,
	}
	if diff := cmp.Diff(want, types(events.Unwritten())); diff != "" {
		t.Error(diff)
	}
	if first, second := events.Unwritten()[1].Block, events.Unwritten()[6].Block; first != 3 || second != 4 {
		t.Errorf("blocks %d and %d", first, second)
	}
}

// TestEachKindOfTextHasItsField checks that reasoning and arguments never look like text, that text of a guarded agent is marked, and that
// names that the model made up for tools are.
func TestEachKindOfTextHasItsField(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		events := transcript.New(7, 1)
		s := events.NewStream(1, transcript.RoundStartData{}, transcript.Sink{Guarded: guarded, Known: func(name string) bool { return name == "look" }})
		s.Complete(inference.Response{Reasoning: "hm", Text: "yes", Calls: []inference.Call{{Name: "look", Arguments: "{}"}, {Name: "made_up"}}})
		text := `block_delta {"text":"yes"}`
		if guarded {
			text = `block_delta {"text":"yes","guarded":true}`
		}
		want := []string{
			`round_start {"of":0}`, `block_start {"kind":"thinking"}`, `block_delta {"thinking":"hm"}`, `block_stop `,
			`block_start {"kind":"text"}`, text, `block_stop `,
			`block_start {"kind":"tool_use","tool":"look"}`, `block_delta {"arguments":"{}"}`, `block_stop `,
			`block_start {"kind":"tool_use","tool":"made_up","unknown":true}`, `block_stop `,
		}
		if diff := cmp.Diff(want, types(events.Unwritten())); diff != "" {
			t.Errorf("guarded %t: %s", guarded, diff)
		}
	}
}

// TestWhenTextIsDue checks that text is written when there is enough of it, or after some
// time.
func TestWhenTextIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := transcript.New(7, 1).NewStream(1, transcript.RoundStartData{}, transcript.Sink{})
		if s.Overdue() != nil {
			t.Error("nothing waits")
		}
		if s.Delta(inference.Delta{Kind: inference.DeltaText, Text: "a"}) {
			t.Error("a letter is due at once")
		}
		started := time.Now()
		<-s.Overdue()
		if waited := time.Since(started); waited != 250*time.Millisecond {
			t.Errorf("it waited %v", waited)
		}
		s.Flush()
		if !s.Delta(inference.Delta{Kind: inference.DeltaText, Text: strings.Repeat("a", 1024)}) {
			t.Error("a kilobyte is not due")
		}
	})
}

// TestRewind checks that Rewind removes the events of a start that could not be written.
func TestRewind(t *testing.T) {
	events := transcript.New(7, 0)
	events.Event(turnkeeper.EventTurnStart, 0, 0, nil)
	events.Mark()
	events.Event(turnkeeper.EventToolStarted, 1, 0, transcript.ToolData{Name: "look"})
	events.Rewind()
	if diff := cmp.Diff([]string{"turn_start "}, types(events.Unwritten())); diff != "" {
		t.Error(diff)
	}
	events.Written()
	if len(events.Unwritten()) != 0 || events.Block() != 1 {
		t.Error("what is written is not forgotten, or blocks do not begin with 1")
	}
}
