package messagesbody

import (
	"slices"
	"testing"

	"turnkeeper/inference"
)

// TestTwoRequestsGoOnFromTheSameMessages writes two requests that extend the same one at the same time: neither may
// write into what the other has, or what is kept for later ones.
func TestTwoRequestsGoOnFromTheSameMessages(t *testing.T) {
	t.Parallel()
	said := func(texts ...string) (req inference.Request) {
		req.CacheKey = "a conversation"
		for _, text := range texts {
			req.Messages = append(req.Messages, inference.Message{Role: inference.RoleUser, Text: text})
		}
		return req
	}
	first := write("p", said("one", "two", "three"))
	first.remember(said("one", "two", "three"))
	before := first.appendMessages(nil)
	a, b := write("p", said("one", "two", "three", "four")), write("p", said("one", "two", "three", "five"))
	for _, w := range []struct {
		*writer

		text string
	}{{a, "four"}, {b, "five"}} {
		want := write("q", said("one", "two", "three", w.text)).appendMessages(nil)
		if got := w.appendMessages(nil); !slices.Equal(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if after := first.appendMessages(nil); !slices.Equal(after, before) {
		t.Errorf("what is kept was changed from %s to %s", before, after)
	}
}
