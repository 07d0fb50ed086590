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

// models are the health of models, and the messages that they have failed.
type models struct {
	health map[string]modelhealth.Health // of models that were down at any time
	probes map[string]turnkeeper.GrantID // the grant whose turn probes a model that is down

	failedMessage map[string]turnkeeper.MessageID // of the newest failure of each model
	suspects      map[suspectKey]suspectRow
	failing       map[turnkeeper.MessageID]failing
}

func newModels() models {
	return models{health: map[string]modelhealth.Health{}, probes: map[string]turnkeeper.GrantID{},
		failedMessage: map[string]turnkeeper.MessageID{}, suspects: map[suspectKey]suspectRow{},
		failing: map[turnkeeper.MessageID]failing{}}
}

// modelsDown returns the models that are down now, by name.
func modelsDown(s *state, now time.Time) (down []modelhealth.Health) {
	for _, name := range sorted(s.models.health) {
		h := s.models.health[name]
		if !h.Down() {
			continue
		}
		h.Probe, h.ProbeTurn = "", 0
		for _, l := range s.held {
			if grant := s.models.probes[name]; grant != "" && l.GrantID == grant {
				h.Probe, h.ProbeTurn = grant, l.TurnID
			}
		}
		h.Due = h.Probe == "" && !h.Until.After(now)
		h.Failed = failedLanes(s, name, now)
		down = append(down, h)
	}
	return down
}

// downNow returns the models that are down now, as the planted bugs show them.
func downNow(s *Store, now time.Time) []modelhealth.Health {
	down := modelsDown(&s.state, now)
	for i := range down {
		if s.bugs.has(BugFailedProbes) {
			down[i].Failed = nil
		}
	}
	return down
}

// failedLanes returns the lanes of the message that a model has failed last, of its suspects, and of open messages that
// a service failed.
func failedLanes(s *state, model string, now time.Time) (lanes []turnkeeper.Lane) {
	ids := []turnkeeper.MessageID{s.models.failedMessage[model]}
	for key := range s.models.suspects {
		if key.model == model {
			ids = append(ids, key.message)
		}
	}
	for id, f := range s.models.failing {
		if m := s.message(id); !f.since.IsZero() && m != nil && m.ClosedAt.IsZero() &&
			s.levels.uses(m.Agent, model, now) {
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
	m := &s.state.models
	for _, name := range e.Answered {
		m.pair(name, t.MessageID, s.now())
	}
	for _, name := range e.Probed {
		m.pair(name, 0, s.now())
	}
	for _, name := range slices.Concat(e.Answered, e.Probed, e.Refused) {
		if h := m.health[name]; !h.Down() {
			continue
		}
		m.health[name] = modelhealth.Health{Model: name}
		delete(m.probes, name)
		modelBack(s, t, name, rings)
		*rings = append(*rings, Bell{Topic: TopicInbox})
	}
	for _, f := range e.ModelFailures {
		if open := s.state.message(t.MessageID).ClosedAt.IsZero(); open && f.Requests > 0 &&
			m.suspect(t.MessageID, f, s.now()) {
			continue
		}
		h := m.health[f.Model]
		h.Model = f.Model
		m.health[f.Model] = h.Fail(f, s.now())
		m.failedMessage[f.Model] = t.MessageID
		delete(m.probes, f.Model)
		*rings = append(*rings, Bell{Topic: TopicInbox})
	}
}

// modelBack ends the pauses of the lanes and turns that wait for a model. of is the turn that is being written.
func modelBack(s *Store, of *turnRow, name string, rings *[]Bell) {
	m := &s.state.models
	for _, l := range s.state.leases {
		if slices.Contains(l.waitsFor, name) && !pairedIn(&s.state, l.Lane, name) {
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

type suspectRow struct {
	modelhealth.Suspect
	failedAt, until, firstPair time.Time
}

// pair makes pairs of an answer with the newest failures of messages other than the given one.
func (m *models) pair(model string, except turnkeeper.MessageID, now time.Time) {
	for key, row := range m.suspects {
		if key.model != model || key.message == except || !row.Open || row.until.Before(now) {
			continue
		}
		if row.Pairs++; row.Pairs == 1 {
			row.firstPair = row.failedAt
		}
		row.Span, row.Open = row.failedAt.Sub(row.firstPair), false
		m.suspects[key] = row
	}
}

// suspect records a failure that the message may have caused. It reports whether the message has a pair, so that the
// failure is not taken for one of the model.
func (m *models) suspect(id turnkeeper.MessageID, f modelhealth.Failure, now time.Time) bool {
	key := suspectKey{id, f.Model}
	row := m.suspects[key]
	row.Model, row.Open, row.failedAt = f.Model, true, now
	row.Failures++
	row.Requests += f.Requests
	row.until = now.Add(modelhealth.PairWindow(row.Failures))
	m.suspects[key] = row
	return row.Paired()
}

// pairedIn reports whether a message of the lane has a pair with the model.
func pairedIn(s *state, lane turnkeeper.Lane, model string) bool {
	for key, row := range s.models.suspects {
		if m := s.message(key.message); key.model == model && row.Paired() && m != nil && m.Lane == lane {
			return true
		}
	}
	return false
}

// suspectsOf returns the models that have failed a message, by name.
func (m *models) suspectsOf(id turnkeeper.MessageID) (all []modelhealth.Suspect) {
	for key, row := range m.suspects {
		if key.message == id {
			all = append(all, row.Suspect)
		}
	}
	slices.SortFunc(all, func(a, b modelhealth.Suspect) int { return strings.Compare(a.Model, b.Model) })
	return all
}

// forget deletes what is recorded of a closed message's failures.
func (m *models) forget(id turnkeeper.MessageID) {
	delete(m.failing, id)
	for key := range m.suspects {
		if key.message == id {
			delete(m.suspects, key)
		}
	}
}

// noteFault updates the message and the lane of a turn that failed, or that waits for models.
func noteFault(s *state, t *turnRow, o turnlog.Outcome, now time.Time) {
	if o.State != turnkeeper.TurnFailed && (o.State != turnkeeper.TurnWaiting || len(o.WaitsFor) == 0) {
		return
	}
	if o.Counted {
		s.message(t.MessageID).Faults++
	}
	if f := s.models.failing[t.MessageID]; len(o.WaitsFor) > 0 {
		if f.since = failingFrom(s, t.MessageID, t, now); f.since.IsZero() {
			f.since = now
		}
		s.models.failing[t.MessageID] = f
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
func (m *models) try(names []string, now time.Time) {
	for _, name := range names {
		if h := m.health[name]; h.Down() && h.Until.After(now) {
			h.Until = now
			m.health[name] = h
		}
	}
}

// Models returns the models that were ever down, by name.
func (s *tables) Models() (all []modelhealth.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range sorted(s.state.models.health) {
		all = append(all, s.state.models.health[name])
	}
	return all
}

// Chains lists the agents that use one of the models.
func (t *tick) Chains(_ context.Context, models []string) (chains []modelhealth.Chain, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, name := range sorted(s.agents) {
			chain := s.levels.chain(name, now)
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
func failingFrom(s *state, id turnkeeper.MessageID, t *turnRow, now time.Time) (from time.Time) {
	m := s.message(id)
	if since := s.models.failing[id].since; !since.IsZero() || m == nil || s.agents[m.Agent] == nil {
		return since
	}
	for _, name := range s.levels.chain(m.Agent, now) {
		h := s.models.health[name]
		if !h.Down() {
			return time.Time{}
		}
		from = later(from, h.DownSince)
	}
	if from.IsZero() {
		return from
	}
	from = later(later(later(from, m.AcceptedAt), m.DueAt), s.models.failing[id].after)
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
func serviceWait(s *state, id turnkeeper.MessageID, t *turnRow, now time.Time) time.Duration {
	wait := s.models.failing[id].total
	if from := failingFrom(s, id, t, now); !from.IsZero() {
		wait += max(0, now.Sub(from))
	}
	return wait
}

// standStill ends the wait of a message for a service, because its turn waits for something else until the given time.
func (m *models) standStill(id turnkeeper.MessageID, now, until time.Time) {
	f := m.failing[id]
	if !f.since.IsZero() {
		f.total += max(0, now.Sub(f.since))
	}
	m.failing[id] = failing{total: f.total, after: until}
}

// givenUp reports whether a message, with its turn if it has an open one, has waited for GiveUpAfter. It is false for a
// message that this tick accepted.
func (s *state) givenUp(id turnkeeper.MessageID, t *turnRow, agent string, now time.Time) bool {
	m, a := s.message(id), s.agents[agent]
	return m != nil && a != nil && serviceWait(s, id, t, now) >= a.GiveUpAfter
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
