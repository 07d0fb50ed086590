package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
)

// If an agent's whole chain is down, only two kinds of turns are granted: those that probe a model,
// one per model, and those of messages that have waited long enough.
func TestOutage(t *testing.T) {
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	down := func(model string, due bool) modelhealth.Health {
		return modelhealth.Health{Model: model, DownSince: since, Due: due}
	}
	chain := func(agent string, models ...string) modelhealth.Chain {
		return modelhealth.Chain{Agent: agent, Models: models}
	}
	ready := func(id turnkeeper.MessageID, agent string) granting.Candidate {
		return granting.Candidate{New: true, MessageID: id, Agent: agent,
			Lane: turnkeeper.Lane(agent + "/" + string(rune('a'+id))), Rank: since}
	}
	cases := map[string]struct {
		down    []modelhealth.Health
		chains  []modelhealth.Chain
		ready   []granting.Candidate
		overdue []granting.Candidate              // has waited for give_up_after
		want    map[turnkeeper.MessageID][]string // probes by granted message
	}{
		"nothing is down": {
			ready: []granting.Candidate{ready(1, "a"), ready(2, "a")},
			want:  map[turnkeeper.MessageID][]string{1: nil, 2: nil},
		},
		"one turn tries it": {
			down: []modelhealth.Health{down("m", true)}, chains: []modelhealth.Chain{chain("a", "m"), chain("b", "m")},
			ready: []granting.Candidate{ready(1, "a"), ready(2, "a"), ready(3, "b"), ready(4, "c")},
			want:  map[turnkeeper.MessageID][]string{1: {"m"}, 4: nil},
		},
		"not due": {
			down: []modelhealth.Health{down("m", false)}, chains: []modelhealth.Chain{chain("a", "m")},
			ready: []granting.Candidate{ready(1, "a"), ready(2, "c")},
			want:  map[turnkeeper.MessageID][]string{2: nil},
		},
		"a fallback is up": {
			down: []modelhealth.Health{down("m", true)}, chains: []modelhealth.Chain{chain("a", "m", "n")},
			ready: []granting.Candidate{ready(1, "a"), ready(2, "a")},
			want:  map[turnkeeper.MessageID][]string{1: {"m"}, 2: nil},
		},
		"a turn for each model": {
			down:   []modelhealth.Health{down("m", true), down("n", true)},
			chains: []modelhealth.Chain{chain("a", "m"), chain("b", "n"), chain("both", "m", "n")},
			ready:  []granting.Candidate{ready(1, "a"), ready(2, "both"), ready(3, "b"), ready(4, "both")},
			want:   map[turnkeeper.MessageID][]string{1: {"m"}, 2: {"n"}},
		},
		"waited for long enough": {
			down: []modelhealth.Health{down("m", false)}, chains: []modelhealth.Chain{chain("a", "m")},
			ready: []granting.Candidate{ready(2, "a")}, overdue: []granting.Candidate{ready(1, "a")},
			want: map[turnkeeper.MessageID][]string{1: nil},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.sit.Down, w.chains, w.messages = c.down, c.chains, c.ready
				for _, r := range c.overdue {
					r.Overdue = true
					w.messages = append(w.messages, r)
				}
				report := w.tick(t, w.scheduler())
				got := map[turnkeeper.MessageID][]string{}
				for _, grants := range w.granted {
					for _, r := range grants {
						got[r.MessageID] = r.Probes
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("granted, with the models that are tried (-want +got):\n%s", diff)
				}
				if left := len(c.ready)+len(c.overdue) > len(c.want); left && len(c.want) > 0 &&
					name == "one turn tries it" && !report.More {
					t.Error("what was left out may hide other work, and the scheduler does not look again")
				}
			})
		})
	}
}
