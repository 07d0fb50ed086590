package turnevents_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
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
	events := turnevents.New(7, 3)
	s := events.NewStream(1, turnevents.RoundStartData{Of: 12}, turnevents.Sink{})
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

// TestARoundSaysThatAnEpochBegins checks that the start of a round has the reason of the epoch of the newest request.
func TestARoundSaysThatAnEpochBegins(t *testing.T) {
	events := turnevents.New(7, 1)
	s := events.NewStream(1, turnevents.RoundStartData{Of: 2}, turnevents.Sink{})
	for _, start := range []*turnkeeper.Epoch{{Reason: "room"}, {}, nil} {
		s.Sending(start)
		s.Delta(inference.Delta{Kind: inference.DeltaText})
		s.Rollback("again")
	}
	var starts []string
	for _, e := range types(events.Unwritten()) {
		if strings.HasPrefix(e, "round_start") {
			starts = append(starts, e)
		}
	}
	if want := []string{`round_start {"of":2,"epoch":"room"}`, `round_start {"of":2}`, `round_start {"of":2}`}; !slices.
		Equal(starts, want) {
		t.Errorf("%q", starts)
	}
}

// TestEachKindOfTextHasItsField checks that reasoning and arguments never look like text, that text of a guarded agent
// is marked, and that names that the model made up for tools are.
func TestEachKindOfTextHasItsField(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		events := turnevents.New(7, 1)
		s := events.NewStream(1, turnevents.RoundStartData{}, turnevents.Sink{Guarded: guarded,
			Known: func(name string) bool { return name == "look" }})
		s.Complete(inference.Response{Reasoning: "hm", Text: "yes",
			Calls: []inference.Call{{Name: "look", Arguments: "{}"}, {Name: "made_up"}}})
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
		s := turnevents.New(7, 1).NewStream(1, turnevents.RoundStartData{}, turnevents.Sink{})
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

// TestNamesOfTools checks that a name is cleaned before it is cut, at 100 characters of any size.
func TestNamesOfTools(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "look": "look", "a\x00b": "ab", "\xff": "\uFFFD",
		strings.Repeat("ä", 99): strings.Repeat("ä", 99), strings.Repeat("ä", 100): strings.Repeat("ä", 100),
		strings.Repeat("ä", 101): strings.Repeat("ä", 100), strings.Repeat("\x00ä", 100) +
			"\xff": strings.Repeat("ä", 100),
	} {
		if got := turnevents.CleanName(name); got != want {
			t.Errorf("%q becomes %q, not %q", name, got, want)
		}
	}
}

// TestAnyStreamShowsItsAnswer checks, for random deltas, flushes and attempts, that the events after the last rollback
// are well-formed blocks with new numbers and hold exactly the texts of the answer, in their order.
func TestAnyStreamShowsItsAnswer(t *testing.T) {
	kinds := []inference.DeltaKind{inference.DeltaThinking, inference.DeltaText, inference.DeltaTool}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		events := turnevents.New(7, 3)
		s := events.NewStream(2, turnevents.RoundStartData{Of: 5}, turnevents.Sink{Known: func(string) bool {
			return true
		}})
		for attempt := range 1 + random.IntN(3) {
			if attempt > 0 {
				s.Rollback("again")
			}
			var want, answer strings.Builder
			open := inference.Delta{}
			for n := range random.IntN(12) {
				d := inference.Delta{Kind: kinds[random.IntN(3)], Text: fmt.Sprint("t", n, " "), Name: "look"}
				if d.Kind == inference.DeltaTool {
					d.Index = random.IntN(2)
				}
				if n == 0 || d.Kind != open.Kind || d.Index != open.Index {
					fmt.Fprintf(&want, "|%s ", d.Kind)
				}
				open = d
				want.WriteString(d.Text)
				if d.Kind == inference.DeltaText {
					answer.WriteString(d.Text)
				}
				s.Delta(d)
				if random.IntN(3) == 0 {
					s.Flush()
				}
			}
			if s.Text() != answer.String() || s.Started() != (want.Len() > 0) {
				t.Errorf("seed %d: started %t with the text %q, not %q", seed, s.Started(), s.Text(), answer.String())
			}
			begun := s.Started()
			s.Complete(inference.Response{Text: answer.String()})
			if got := shownBy(t, events.Unwritten(), 3); begun && got != want.String() {
				t.Errorf("seed %d: the events show %q, not %q", seed, got, want.String())
			}
		}
	}
}

// shownBy returns the blocks after the last rollback, each as its kind and texts.
func shownBy(t *testing.T, events []turnkeeper.Event, block int) string {
	t.Helper()
	var b strings.Builder
	open := false
	for i, e := range events {
		var d struct{ Kind, Text, Thinking, Arguments string }
		if len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatal(err)
			}
		}
		if e.Round != 2 || e.TurnID != 7 || open && e.Block != block || !open && e.Type == turnkeeper.EventBlockStart &&
			e.Block != block {
			t.Fatalf("event %d: %+v, in block %d", i, e, block)
		}
		switch e.Type {
		case turnkeeper.EventBlockStart:
			open = true
			fmt.Fprintf(&b, "|%s ", d.Kind)
		case turnkeeper.EventBlockDelta:
			b.WriteString(d.Text + d.Thinking + d.Arguments)
		case turnkeeper.EventBlockStop:
			open = false
			block++
		case turnkeeper.EventRoundRollback:
			b.Reset()
		case turnkeeper.EventRoundStart:
			if open || b.Len() > 0 {
				t.Fatalf("event %d begins the round again", i)
			}
		}
	}
	if open {
		t.Fatal("the last block is open")
	}
	return b.String()
}

// TestRewind checks that Rewind removes the events of a start that could not be written.
func TestRewind(t *testing.T) {
	events := turnevents.New(7, 0)
	events.Event(turnkeeper.EventTurnStart, 0, 0, nil)
	events.Mark()
	events.Event(turnkeeper.EventToolStarted, 1, 0, turnevents.ToolData{Name: "look"})
	events.Rewind()
	if diff := cmp.Diff([]string{"turn_start "}, types(events.Unwritten())); diff != "" {
		t.Error(diff)
	}
	events.Written()
	if len(events.Unwritten()) != 0 || events.Block() != 1 {
		t.Error("what is written is not forgotten, or blocks do not begin with 1")
	}
}
