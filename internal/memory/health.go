package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// models has the methods on models' health.
type models struct{ *state }

// down returns the models that are down now, by name.
func (s models) down(now time.Time) (down []modelhealth.Health) {
	for _, name := range sorted(s.health) {
		h := s.health[name]
		if !h.Down() {
			continue
		}
		h.Probe, h.ProbeTurn = "", 0
		for _, l := range s.held {
			if grant := s.probes[name]; grant != "" && l.GrantID == grant {
				h.Probe, h.ProbeTurn = grant, l.TurnID
			}
		}
		h.Due = h.Probe == "" && !h.Until.After(now)
		down = append(down, h)
	}
	return down
}

// noteModels records which models answered or failed (see turnlog.Entry). The first answer of a
// model that was down ends the pauses of the lanes that wait for it.
func (s *Store) noteModels(e turnlog.Entry, rings *[]Bell) {
	for _, name := range e.Answered {
		if h := s.state.health[name]; !h.Down() {
			continue
		}
		s.state.health[name] = modelhealth.Health{Model: name}
		delete(s.state.probes, name)
		for _, l := range s.state.leases {
			if slices.Contains(l.waitsFor, name) {
				l.NotBefore, l.waitsFor = time.Time{}, nil
			}
		}
		*rings = append(*rings, Bell{Topic: TopicInbox})
	}
	for _, f := range e.ModelFailures {
		h := s.state.health[f.Model]
		h.Model = f.Model
		s.state.health[f.Model] = h.Fail(f, s.now())
		delete(s.state.probes, f.Model)
	}
}

// noteFault updates the message and the lane of a turn that failed.
func (s models) noteFault(t *turnRow, o turnlog.Outcome) {
	if o.State != turnkeeper.TurnFailed {
		return
	}
	if o.Counted {
		s.message(t.MessageID).Faults++
	}
	if l := s.leases[t.Lane]; l != nil {
		l.waitsFor = o.WaitsFor
	}
}

// try makes models that are down due at once.
func (s models) try(names []string, now time.Time) {
	for _, name := range names {
		if h := s.health[name]; h.Down() && h.Until.After(now) {
			h.Until = now
			s.health[name] = h
		}
	}
}

// Models returns the models that were ever down, by name.
func (s *tables) Models() (all []modelhealth.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range sorted(s.state.health) {
		all = append(all, s.state.health[name])
	}
	return all
}

// Chains lists the agents that use one of the models.
func (t *tick) Chains(_ context.Context, models []string) (chains []modelhealth.Chain, err error) {
	err = t.read(func(s *state, _ time.Time) {
		for _, name := range sorted(s.agents) {
			a := s.agents[name]
			if slices.ContainsFunc(a.Models, func(m string) bool { return slices.Contains(models, m) }) {
				chains = append(chains, modelhealth.Chain{Agent: name, Models: a.Models})
			}
		}
	})
	return chains, err
}

// dueSince returns the time from which a message could be granted.
func dueSince(m *turnkeeper.Message) time.Time {
	if m.DueAt.After(m.AcceptedAt) {
		return m.DueAt
	}
	return m.AcceptedAt
}

// waitingSince is dueSince for a message with a turn (nil: none): the wait for a person does not count.
func waitingSince(m *turnkeeper.Message, t *turnRow) time.Time {
	since := dueSince(m)
	if t != nil {
		for _, a := range t.asks {
			if a.ClosedAt.After(since) {
				since = a.ClosedAt
			}
		}
	}
	return since
}

// givenUp reports whether a message, with its turn if it has an open one, has waited for GiveUpAfter. It is false for a message
// that this tick accepted.
func (s *state) givenUp(id turnkeeper.MessageID, t *turnRow, agent string, now time.Time) bool {
	m, a := s.message(id), s.agents[agent]
	return m != nil && a != nil && !now.Before(waitingSince(m, t).Add(a.GiveUpAfter))
}
