package wire

import (
	"fmt"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/internal/kept"
	"turnkeeper/internal/limittest"
)

// TestLimits tries the limits of what renderers share.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"maxDeclarations": {At: 1000, Takes: func(_ *testing.T, n int) bool {
			c := NewDeclarations(declareName)
			for i := range n {
				c.Of([]inference.ToolDefinition{{Name: fmt.Sprint(i)}})
			}
			return c.Len() == n
		}},
		"maxPrefixes": {At: maxPrefixes, Takes: func(_ *testing.T, n int) bool {
			// a kept.Map has seven eighths for large values, and the rest for small ones
			const large, small, rest = 7, 64, maxPrefixes / 8
			var c Prefixes[int]
			all := make([]inference.Request, large+small)
			for i := range all {
				all[i] = inference.Request{CacheKey: fmt.Sprint(i), Messages: []inference.Message{{Text: "one"}}}
				size := rest / small
				if i < large {
					size = (n-rest)/large + (n-rest)%large*((i+1)/large)
				}
				c.Keep(all[i], nil, i, size)
			}
			for i, req := range all {
				if written, known := c.Of(req, nil); known != 1 || written != i {
					return false
				}
			}
			return true
		}},
		"maxAsked": {At: maxAsked, Takes: func(_ *testing.T, n int) bool {
			s := NewIDSet(kept.List[string]{}.Append("a", "b"))
			for range n {
				if !s.Has("b") {
					return false
				}
			}
			return s.index == nil
		}},
		"maxBuffer": {None: "a larger buffer is not kept"},
	})
}

func declareName(tool inference.ToolDefinition) Encoded { return Encoded(tool.Name + tool.Description) }

// TestIDSets asks for ids often enough for an index, before and after more are taken.
func TestIDSets(t *testing.T) {
	s := NewIDSet(kept.List[string]{}.Append("a", "b"))
	for i := range 3 * maxAsked {
		id := fmt.Sprint(i)
		if s.Has(id) || !s.Has("a") || !s.Has("b") {
			t.Fatalf("before id %d was taken: %v", i, s.All().Items())
		}
		if s.Add(id); !s.Has(id) || s.All().Len() != i+3 {
			t.Fatalf("after id %d was taken: %v", i, s.All().Items())
		}
	}
}

// TestDeclarationsAreThoseOfTheRequest declares tools that change, come twice, and come again.
func TestDeclarationsAreThoseOfTheRequest(t *testing.T) {
	c := NewDeclarations(declareName)
	for _, want := range []string{"[a1 b]", "[a2 b]", "[a1 b]"} {
		got := c.Of([]inference.ToolDefinition{{Name: "a", Description: want[2:3]}, {Name: "b"}, {Name: "a"}})
		if fmt.Sprintf("%s", got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
