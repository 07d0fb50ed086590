package scheduler

import (
	"context"
	"slices"

	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
)

// An outage holds the models that are down, and the agents that use them.
type outage struct {
	down   []modelhealth.Health
	chains map[string]modelhealth.Chain // by agent, of the agents that use a model of down
	probed map[string]bool              // models that a turn granted in this tick probes
}

// outage reads which agents use the models that are down.
func (s *Scheduler) outage(ctx context.Context, t Tick, sit granting.Snapshot) (*outage, error) {
	o := &outage{down: sit.Down, chains: map[string]modelhealth.Chain{}, probed: map[string]bool{}}
	if len(sit.Down) == 0 {
		return o, nil
	}
	names := make([]string, len(sit.Down))
	for i, h := range sit.Down {
		names[i] = h.Model
	}
	chains, err := t.Chains(ctx, names)
	for _, c := range chains {
		o.chains[c.Agent] = c
	}
	return o, err
}

// probes returns the models of a chain that are down, are due for a probe, and are not yet
// probed by a turn of this tick.
func (o *outage) probes(c modelhealth.Chain) (models []modelhealth.Health) {
	for _, h := range o.down {
		if h.Due && !o.probed[h.Model] && slices.Contains(c.Models, h.Model) {
			models = append(models, h)
		}
	}
	return models
}

// held returns the agents whose whole chain is down and that cannot probe a model now: only their overdue work is
// granted.
func (o *outage) held() (held []string) {
	for agent, c := range o.chains {
		if c.Down(o.down) && len(o.probes(c)) == 0 {
			held = append(held, agent)
		}
	}
	slices.Sort(held)
	return held
}

// maxFailedLanes is the maximum number of failed lanes that a tick looks behind for a message to probe a model.
const maxFailedLanes = 1000

// failedLanes returns how many candidates to read beyond the limit, so that one in a lane that has not failed is among
// them.
func (o *outage) failedLanes() (n int) {
	for _, h := range o.down {
		n += max(1, len(h.Failed))
	}
	return min(n, maxFailedLanes)
}

// admit returns the work that may be granted, at most limit items. Of the work that uses a model that is due for a
// probe, it chooses the turn that probes it: the first in a lane that has not failed it, so that no message takes a
// model down for others. Only if there is none, it is the first: its worker makes a request of its own before the
// turn's. Of an agent whose whole chain is down, admit leaves out all work but such a turn and overdue work. left
// reports whether anything was left out.
func (o *outage) admit(ready []granting.Candidate, limit int) (admitted []granting.Candidate, left bool) {
	o.choose(ready)
	for _, r := range ready {
		c := o.chains[r.Agent]
		if len(admitted) == limit || len(r.Probes) == 0 && c.Down(o.down) && !r.Overdue {
			left = true
			continue
		}
		admitted = append(admitted, r)
	}
	return admitted, left
}

// choose sets the models that each candidate probes.
func (o *outage) choose(ready []granting.Candidate) {
	for _, innocent := range []bool{true, false} {
		for i := range ready {
			r := &ready[i]
			for _, h := range o.probes(o.chains[r.Agent]) {
				if slices.Contains(h.Failed, r.Lane) != innocent {
					r.Probes = append(r.Probes, h.Model)
					o.probed[h.Model] = true
				}
			}
		}
	}
}
