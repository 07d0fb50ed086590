package memory

import (
	"context"
	"maps"
	"slices"
	"strings"
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
		h.Failed = s.failedLanes(name, now)
		down = append(down, h)
	}
	return down
}

// downNow returns the models that are down now, as the planted bugs show them.
func downNow(s *Store, now time.Time) []modelhealth.Health {
	down := models{&s.state}.down(now)
	for i := range down {
		if s.bugs.has(BugFailedProbes) {
			down[i].Failed = nil
		}
	}
	return down
}

// failedLanes returns the lanes of the message that a model has failed last, of its suspects, and of open messages that
// a service failed.
func (s models) failedLanes(model string, now time.Time) (lanes []turnkeeper.Lane) {
	ids := []turnkeeper.MessageID{s.failedMessage[model]}
	for key := range s.suspects {
		if key.model == model {
			ids = append(ids, key.message)
		}
	}
	for id, f := range s.failing {
		if m := s.message(id); !f.since.IsZero() && m != nil && m.ClosedAt.IsZero() && s.uses(m.Agent, model, now) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if m := s.message(id); m != nil && !slices.Contains(lanes, m.Lane) {
			lanes = append(lanes, m.Lane)
		}
	}
	slices.Sort(lanes)
	return lanes
}

// noteModels records which models answered or failed in a turn (see turnlog.Entry). The first answer of a
// model that was down ends the pauses of the lanes and turns that wait for it, but not those of messages that
// have a pair with it.
func (s *Store) noteModels(t *turnRow, e turnlog.Entry, rings *[]Bell) {
	m := models{&s.state}
	for _, name := range e.Answered {
		m.pair(name, t.MessageID, s.now())
	}
	for _, name := range e.Probed {
		m.pair(name, 0, s.now())
	}
	for _, name := range slices.Concat(e.Answered, e.Probed, e.Refused) {
		if h := s.state.health[name]; !h.Down() {
			continue
		}
		s.state.health[name] = modelhealth.Health{Model: name}
		delete(s.state.probes, name)
		modelBack(s, t, name, rings)
		*rings = append(*rings, Bell{Topic: TopicInbox})
	}
	for _, f := range e.ModelFailures {
		if open := s.state.message(t.MessageID).ClosedAt.IsZero(); open && f.Requests > 0 &&
			m.suspect(t.MessageID, f, s.now()) {
			continue
		}
		h := s.state.health[f.Model]
		h.Model = f.Model
		s.state.health[f.Model] = h.Fail(f, s.now())
		s.state.failedMessage[f.Model] = t.MessageID
		delete(s.state.probes, f.Model)
		*rings = append(*rings, Bell{Topic: TopicInbox})
	}
}

// modelBack ends the pauses of the lanes and turns that wait for a model. of is the turn that is being written.
func modelBack(s *Store, of *turnRow, name string, rings *[]Bell) {
	m := models{&s.state}
	for _, l := range s.state.leases {
		if slices.Contains(l.waitsFor, name) && !m.pairedIn(l.Lane, name) {
			endPause(&s.state, l, s.now())
		}
	}
	for _, lane := range lanesOf(s.state.open) {
		turn := s.state.open[lane]
		if _, busy := turn.held.blocks(); busy || turn.ID == of.ID || !slices.Contains(turn.waitsFor, name) ||
			m.suspects[suspectKey{turn.MessageID, name}].Paired() {
			continue
		}
		draft := turn.draft()
		s.wake(draft, rings)
		s.state.setTurn(draft)
	}
}

// A suspectKey is a message that a model has failed.
type suspectKey struct {
	message turnkeeper.MessageID
	model   string
}

// uses reports whether a model is one that an agent's turns ask now.
func (s models) uses(agent, model string, now time.Time) bool {
	return slices.Contains(levels(s).chain(agent, now), model)
}

type suspectRow struct {
	modelhealth.Suspect
	failedAt, until, firstPair time.Time
}

// pair makes pairs of an answer with the newest failures of messages other than the given one.
func (s models) pair(model string, except turnkeeper.MessageID, now time.Time) {
	for key, row := range s.suspects {
		if key.model != model || key.message == except || !row.Open || row.until.Before(now) {
			continue
		}
		if row.Pairs++; row.Pairs == 1 {
			row.firstPair = row.failedAt
		}
		row.Span, row.Open = row.failedAt.Sub(row.firstPair), false
		s.suspects[key] = row
	}
}

// suspect records a failure that the message may have caused. It reports whether the message has a pair, so that the
// failure is not taken for one of the model.
func (s models) suspect(id turnkeeper.MessageID, f modelhealth.Failure, now time.Time) bool {
	key := suspectKey{id, f.Model}
	row := s.suspects[key]
	row.Model, row.Open, row.failedAt = f.Model, true, now
	row.Failures++
	row.Requests += f.Requests
	row.until = now.Add(modelhealth.PairWindow(row.Failures))
	s.suspects[key] = row
	return row.Paired()
}

// pairedIn reports whether a message of the lane has a pair with the model.
func (s models) pairedIn(lane turnkeeper.Lane, model string) bool {
	for key, row := range s.suspects {
		if m := s.message(key.message); key.model == model && row.Paired() && m != nil && m.Lane == lane {
			return true
		}
	}
	return false
}

// suspectsOf returns the models that have failed a message, by name.
func (s models) suspectsOf(id turnkeeper.MessageID) (all []modelhealth.Suspect) {
	for key, row := range s.suspects {
		if key.message == id {
			all = append(all, row.Suspect)
		}
	}
	slices.SortFunc(all, func(a, b modelhealth.Suspect) int { return strings.Compare(a.Model, b.Model) })
	return all
}

// forget deletes what is recorded of a closed message's failures.
func (s models) forget(id turnkeeper.MessageID) {
	delete(s.failing, id)
	for key := range s.suspects {
		if key.message == id {
			delete(s.suspects, key)
		}
	}
}

// noteFault updates the message and the lane of a turn that failed, or that waits for models.
func (s models) noteFault(t *turnRow, o turnlog.Outcome, now time.Time) {
	if o.State != turnkeeper.TurnFailed && (o.State != turnkeeper.TurnWaiting || len(o.WaitsFor) == 0) {
		return
	}
	if o.Counted {
		s.message(t.MessageID).Faults++
	}
	if f := s.failing[t.MessageID]; len(o.WaitsFor) > 0 {
		if f.since = s.failingFrom(t.MessageID, t, now); f.since.IsZero() {
			f.since = now
		}
		s.failing[t.MessageID] = f
	}
	if o.State == turnkeeper.TurnWaiting {
		if t.State == turnkeeper.TurnWaiting {
			t.waitsFor = o.WaitsFor
		}
	} else if l := s.leases[t.Lane]; l != nil {
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
	err = t.read(func(s *state, now time.Time) {
		for _, name := range sorted(s.agents) {
			chain := levels{s}.chain(name, now)
			if slices.ContainsFunc(chain, func(m string) bool { return slices.Contains(models, m) }) {
				chains = append(chains, modelhealth.Chain{Agent: name, Models: chain})
			}
		}
	})
	return chains, err
}

// A failing says how long a message has waited for services that failed.
type failing struct {
	since time.Time     // the first failure of the wait that goes on; zero: none
	total time.Duration // of earlier waits
	after time.Time     // the end of the last wait for a person or a budget; zero: none
}

// failingFrom returns since when a message, with its turn if it has an open one, has waited for a service: since the
// first failure of one of its turns. A message that no turn has tried since waits from the time at which its whole
// chain was down, and it was due and waited neither for a person nor a budget. Zero: it does not wait for one.
func (s models) failingFrom(id turnkeeper.MessageID, t *turnRow, now time.Time) (from time.Time) {
	m := s.message(id)
	if since := s.failing[id].since; !since.IsZero() || m == nil || s.agents[m.Agent] == nil {
		return since
	}
	for _, name := range levels(s).chain(m.Agent, now) {
		h := s.health[name]
		if !h.Down() {
			return time.Time{}
		}
		from = later(from, h.DownSince)
	}
	if from.IsZero() {
		return from
	}
	from = later(later(later(from, m.AcceptedAt), m.DueAt), s.failing[id].after)
	if t != nil {
		for _, a := range t.asks {
			from = later(from, a.ClosedAt)
		}
	}
	return from
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// serviceWait returns how long a message has waited for a service.
func (s models) serviceWait(id turnkeeper.MessageID, t *turnRow, now time.Time) time.Duration {
	wait := s.failing[id].total
	if from := s.failingFrom(id, t, now); !from.IsZero() {
		wait += max(0, now.Sub(from))
	}
	return wait
}

// standStill ends the wait of a message for a service, because its turn waits for something else until the given time.
func (s models) standStill(id turnkeeper.MessageID, now, until time.Time) {
	f := s.failing[id]
	if !f.since.IsZero() {
		f.total += max(0, now.Sub(f.since))
	}
	s.failing[id] = failing{total: f.total, after: until}
}

// givenUp reports whether a message, with its turn if it has an open one, has waited for GiveUpAfter. It is false for a
// message that this tick accepted.
func (s *state) givenUp(id turnkeeper.MessageID, t *turnRow, agent string, now time.Time) bool {
	m, a := s.message(id), s.agents[agent]
	return m != nil && a != nil && models{s}.serviceWait(id, t, now) >= a.GiveUpAfter
}

// waited reports whether a turn has waited for a model for as long as it was to.
func (t *turnRow) waited(now time.Time) bool {
	return t.State == turnkeeper.TurnWaiting && len(t.waitsFor) > 0 && !t.DueAt.After(now)
}

// endModelWaits queues turns whose wait for a model is over.
func (t *tick) endModelWaits(limit int) (n int, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, lane := range lanesOf(s.open) {
			turn := s.open[lane]
			if !t.free(turn) || n == limit || !turn.waited(now) {
				continue
			}
			n++
			turn.held = t.tx
			t.again[turn.ID] = true
			t.later(func(rings *[]Bell) {
				draft := t.s.state.turn(turn.ID).draft()
				t.s.wake(draft, rings)
				t.s.state.setTurn(draft)
			})
		}
	})
	return n, err
}
