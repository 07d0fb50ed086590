package inference_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"turnkeeper/inference"
)

// spoken collects what a Speech passes on.
type spoken struct{ text, thought strings.Builder }

func (s *spoken) pass(kind inference.DeltaKind, text string) {
	if kind == inference.DeltaThinking {
		s.thought.WriteString(text)
	} else {
		s.text.WriteString(text)
	}
}

// TestTextIsHeldBackAsLongAsItMayBeReasoning checks what is passed on while an answer streams: of a model of which
// nothing is known, one that has begun with reasoning, and one that has not.
func TestTextIsHeldBackAsLongAsItMayBeReasoning(t *testing.T) {
	habit := &inference.Habit{}
	answer := func(cut bool, pieces ...string) (early, text string) {
		var got spoken
		s := inference.NewSpeech(habit, false, got.pass)
		for _, piece := range pieces {
			s.Add(piece)
		}
		early = got.text.String()
		s.Close(cut)
		s.End(true)
		return early, s.Text()
	}
	for _, step := range []struct {
		name        string
		cut         bool
		text        []string
		early, said string
	}{
		{"unknown, cut: nothing is learnt", true, []string{"so far ", "so good"}, "", "so far so good"},
		{"unknown: the first whole answer", false, []string{"one ", "two"}, "", "one two"},
		{"plain: passed on at once", false, []string{"one ", "two"}, "one two", "one two"},
		{"plain, but a tag comes: what was passed on is void", false, []string{"hm ", "hm</think>", "yes"},
			"hm hm", "yes"},
		{"begins with reasoning: held until the tag", false, []string{"hm ", "hm</think>", "yes"}, "yes", "yes"},
		{"begins with reasoning, and was cut in it", true, []string{"hm ", "hm"}, "", ""},
		{"begins with reasoning, but not this time", false, []string{"just text"}, "", "just text"},
	} {
		if early, said := answer(step.cut, step.text...); early != step.early || said != step.said {
			t.Errorf("%s: passed on %q and said %q, want %q and %q", step.name, early, said, step.early, step.said)
		}
	}
}

// TestReasoningIsTheSameHoweverATextIsCut splits texts at random places.
func TestReasoningIsTheSameHoweverATextIsCut(t *testing.T) {
	parts := []string{"<think>", "</think>", "<thinking>", "</thinking>", "`", "\"", "```\n", "\n", " ", "text", "é",
		"◁", "◁/think▷", "[THINK]", "[/THINK]", "<tool_call>", "<", "["}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var b strings.Builder
		for range 1 + random.IntN(8) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		text := b.String()
		split := func(next func(rest string) int) (string, string) {
			var got spoken
			s := inference.NewSpeech(&inference.Habit{}, true, got.pass)
			for rest := text; rest != ""; {
				n := next(rest)
				s.Add(rest[:n])
				rest = rest[n:]
			}
			s.Close(false)
			s.End(true)
			// the second tag may come after text was passed on
			again := strings.Count(strings.ToLower(text), "/think") > 1
			if got.text.String() != s.Text() && !again {
				t.Fatalf("%q: passed on %q, said %q", text, got.text.String(), s.Text())
			}
			return s.Text(), got.thought.String()
		}
		said, thought := split(func(rest string) int { return len(rest) })
		saidToo, thoughtToo := split(func(rest string) int {
			characters := strings.SplitAfter(rest, "")
			return len(strings.Join(characters[:1+random.IntN(min(len(characters), 4))], ""))
		})
		if said != saidToo || thought != thoughtToo {
			t.Fatalf("%q: said %q and thought %q whole, %q and %q in pieces", text, said, thought, saidToo, thoughtToo)
		}
	}
}
