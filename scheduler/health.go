package scheduler

import (
	"context"
	"slices"

	"turnkeeper"
)

// An outage is what a tick knows about models that are down.
type outage struct {
	down   []turnkeeper.ModelHealth
	chains map[string]turnkeeper.AgentChain // by agent, of the agents that use one of them
	taken  map[string]bool                  // models that a turn granted in this tick probes
}

// outage reads which agents use the models that are down.
func (s *Scheduler) outage(ctx context.Context, t Tick, sit turnkeeper.Situation) (*outage, error) {
	o := &outage{down: sit.Down, chains: map[string]turnkeeper.AgentChain{}, taken: map[string]bool{}}
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

// probes returns the models of a chain that are down, may be tried now, and are not yet
// tried by a turn of this tick.
func (o *outage) probes(c turnkeeper.AgentChain) (models []string) {
	for _, h := range o.down {
		if h.Due && !o.taken[h.Model] && slices.Contains(c.Models, h.Model) {
			models = append(models, h.Model)
		}
	}
	return models
}

// stuck returns the agents whose whole chain is down. held are those of them that
// cannot try any model of it: only their overdue work is granted.
func (o *outage) stuck() (stuck, held []string) {
	for agent, c := range o.chains {
		if !c.Down(o.down) {
			continue
		}
		stuck = append(stuck, agent)
		if len(o.probes(c)) == 0 {
			held = append(held, agent)
		}
	}
	slices.Sort(stuck)
	slices.Sort(held)
	return stuck, held
}

// admit leaves out work that would ask a model in vain. A model that may be tried is
// tried by the first turn that asks it, and by no other. If an agent's whole chain is
// down, only such a turn is admitted, and work that has waited as long as it may. left
// reports whether anything was left out.
func (o *outage) admit(ready []turnkeeper.Ready) (admitted []turnkeeper.Ready, left bool) {
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
			o.taken[model] = true
		}
		admitted = append(admitted, r)
	}
	return admitted, left
}
