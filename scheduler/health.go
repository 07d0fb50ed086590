package scheduler

import (
	"context"
	"slices"

	"turnkeeper"
)

// An outage is what a tick knows of models that are down.
type outage struct {
	down   []turnkeeper.ModelHealth
	chains map[string]turnkeeper.AgentChain // of the agents that ask one of them
	taken  map[string]bool                  // models that a turn granted in this tick tries
}

// outage reads which agents the models concern that are down.
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

// probes are the models of a chain that are down, may be tried now, and are not tried
// by a turn of this tick yet.
func (o *outage) probes(c turnkeeper.AgentChain) (models []string) {
	for _, h := range o.down {
		if h.Due && !o.taken[h.Model] && slices.Contains(c.Models, h.Model) {
			models = append(models, h.Model)
		}
	}
	return models
}

// stuck are the agents whose whole chain is down, and held those of them that cannot
// try any of it: nothing of these is granted.
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

// admit leaves out what would ask a model in vain. Each model that may be tried is
// tried by the first turn that asks it, and by no other. Of agents whose whole chain is
// down only such a turn is admitted, and what has waited for as long as it may. left says
// that something was left out.
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
