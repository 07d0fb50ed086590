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
func (o *outage) probes(c modelhealth.Chain) (models []string) {
	for _, h := range o.down {
		if h.Due && !o.probed[h.Model] && slices.Contains(c.Models, h.Model) {
			models = append(models, h.Model)
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

// admit returns the work that may be granted. The first turn that uses a model that is due
// for a probe probes it. Of an agent whose whole chain is down, admit leaves out all work but
// such a turn and overdue work. left reports whether anything was left out.
func (o *outage) admit(ready []granting.Candidate) (admitted []granting.Candidate, left bool) {
	if len(o.down) == 0 {
		return ready, false
	}
	for _, r := range ready {
		c := o.chains[r.Agent]
		r.Probes = o.probes(c)
		if len(r.Probes) == 0 && c.Down(o.down) && !r.Overdue {
			left = true
			continue
		}
		for _, model := range r.Probes {
			o.probed[model] = true
		}
		admitted = append(admitted, r)
	}
	return admitted, left
}
