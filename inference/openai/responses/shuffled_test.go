package responses_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestShuffledStreams loses, repeats and swaps events of streams. The calls are those of the last event; if it has
// none, they are calls of the model, or in doubt.
func TestShuffledStreams(t *testing.T) {
	doubts := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := &strictServer{t: t, r: r, encrypted: true, sent: map[string][]byte{}}
		output := s.output()
		events := strings.SplitAfter(s.stream(output), "\n\n")
		events = slices.DeleteFunc(events, func(e string) bool { return e == "" })
		last := len(events) - 1
		for range 1 + r.IntN(3) {
			switch at, to := r.IntN(last), r.IntN(last); r.IntN(3) {
			case 0:
				events[at] = ": lost\n\n"
			case 1:
				events[at] += events[to]
			default:
				events[at], events[to] = events[to], events[at]
			}
		}
		res, failure := read(t, strings.Join(events, ""))
		if failure != nil {
			if !strings.Contains(events[last], `"output":[]`) {
				t.Errorf("seed %d: %v", seed, failure)
			}
			continue
		}
		if res.Doubt != "" {
			doubts++
		}
		var want []string
		for _, item := range output {
			if item["type"] == "function_call" {
				want = append(want, fmt.Sprint(item["call_id"], item["name"], item["arguments"]))
			}
		}
		var got []string
		for _, c := range res.Calls {
			got = append(got, fmt.Sprint(c.ID, c.Name, c.Arguments))
		}
		whole := !strings.Contains(events[last], `"output":[]`)
		strange := slices.ContainsFunc(got, func(c string) bool { return !slices.Contains(want, c) })
		if whole && !slices.Equal(got, want) || strange && res.Doubt == "" {
			t.Errorf("seed %d: got %q, doubt %q, want %q of\n%s", seed, got, res.Doubt, want, strings.Join(events, ""))
		}
	}
	if doubts == 0 || doubts > 250 {
		t.Errorf("%d of 400 answers are in doubt", doubts)
	}
}
