package modelhealth_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/golden"
	"turnkeeper/internal/modelhealth"
)

// TestHealth compares the pauses, and the health after each of some failures, with testdata.
func TestHealth(t *testing.T) {
	t.Parallel()
	var lines []string
	for n := -1; n <= 9; n++ {
		f := modelhealth.Failure{Seen: n, RetryAfter: 10 * time.Second}
		lines = append(lines, fmt.Sprintf("%d failures: backoff %s, pause %s, window of a pair %s", n,
			modelhealth.Backoff(n), f.Pause(), modelhealth.PairWindow(n)))
	}
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := modelhealth.Health{Model: "p/m", Probe: "g", ProbeTurn: 7, Agents: []string{"a"}, NeededBy: []string{"a"}}
	for i, f := range []modelhealth.Failure{
		{ErrorClass: "one", Error: "first"}, {ErrorClass: "two", Seen: 1}, {ErrorClass: "late", Seen: 0},
		{ErrorClass: "late", Seen: 1, RetryAfter: time.Hour}, {Seen: 2, RetryAfter: time.Second},
		{Seen: 3, RetryAfter: time.Minute}, {Seen: 9},
	} {
		h = h.Fail(f, began.Add(time.Duration(i)*time.Minute))
		lines = append(lines, fmt.Sprintf("%+v, down %t, %s", h, h.Down(), h.State()))
		h.Probe, h.ProbeTurn = "g", 7
	}
	for _, h := range []modelhealth.Health{{}, {Asked: true}, {Agents: []string{"a"}}, {Agents: []string{"a"},
		Asked: true}, {DownSince: began}, {Agents: []string{"a"}, DownSince: began}, {Agents: []string{"a"},
		DownSince: began, Probe: "g"}, {Agents: []string{"a"}, Probe: "g", Asked: true}} {
		lines = append(lines, fmt.Sprintf("%q, %v, asked %t, probe %q: %s, down %t, used %t", h.DownSince, h.Agents,
			h.Asked, h.Probe, h.State(), h.Down(), h.Used()))
	}
	for pairs := 2; pairs <= 4; pairs++ {
		for _, span := range []time.Duration{10*time.Minute - 1, 10 * time.Minute, 10*time.Minute + 1} {
			for requests := 18; requests <= 20; requests++ {
				s := modelhealth.Suspect{Pairs: pairs, Span: span, Requests: requests}
				lines = append(lines, fmt.Sprintf("%d pairs in %s, %d and 1 requests: guilty %t", pairs, span,
					requests, s.Guilty(1)))
			}
		}
	}
	lines = append(lines, fmt.Sprint("paired: ", modelhealth.Suspect{}.Paired(), " ",
		modelhealth.Suspect{Pairs: 1}.Paired()))
	down := []modelhealth.Health{{Model: "a", DownSince: began}, {Model: "b"}, {Model: "c", DownSince: began}}
	for _, models := range []string{"", "a", "b", "a c", "a b", "c a", "d", "a d"} {
		lines = append(lines, fmt.Sprintf("a chain of %q is down: %t", models,
			modelhealth.Chain{Models: strings.Fields(models)}.Down(down)))
	}
	golden.File(t, "testdata/health.txt", strings.Join(lines, "\n")+"\n")
}
