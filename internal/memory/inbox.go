package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/presence"
)

// RegisterAgents stores agents, so that messages to them are accepted and their
// schedules fire. It ends the back-off of their lanes, and of turns that a budget has put off.
func (c *Conn) RegisterAgents(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	return c.ask(ctx, "register", func() error {
		return c.store.locked(func(rings *[]Bell) error {
			for _, a := range agents {
				c.store.state.register(a, c.store.now())
			}
			*rings = append(*rings, Bell{Topic: TopicInbox})
			return nil
		})
	})
}

func (s *state) register(a turnkeeper.AgentRegistration, now time.Time) {
	s.definitions[a.DefinitionHash] = slices.Clone(a.Definition)
	known := a
	if old := s.agents[a.Name]; old != nil {
		known.RetiredAt = old.RetiredAt
	}
	s.agents[a.Name] = &known
	s.moveLanes(&known)
	s.levels.register(known, now)
	for _, l := range s.leases {
		if l.Lane.Agent() == a.Name {
			endPause(s, l, now)
		}
	}
	for _, t := range s.open { // it may have another budget now
		if t.Agent == a.Name && t.State == turnkeeper.TurnQueued && t.ErrorClass == string(turnkeeper.StopBudget) {
			t.DueAt = time.Time{}
		}
	}
	s.models.try(s.levels.allModels(&known), now)
	kept := map[string]bool{}
	for _, sched := range a.Schedules {
		kept[sched.Name] = true
		key := scheduleKey{a.Name, sched.Name}
		old := s.schedules[key]
		row := sched
		row.Agent, row.Active = a.Name, true
		if old != nil {
			row.PausedAt, row.LastSlot, row.LastError = old.PausedAt, old.LastSlot, old.LastError
			row.SkippedSlot, row.SkippedWhy, row.Skipped = old.SkippedSlot, old.SkippedWhy, old.Skipped
			if old.Active && old.Cron == row.Cron && old.TimeZone == row.TimeZone {
				row.NextDue = old.NextDue
			}
		}
		s.schedules[key] = &row
	}
	for key, sched := range s.schedules {
		if key.agent == a.Name && !kept[key.name] {
			sched.Active = false
		}
	}
}

// RetireAgent makes an agent refuse new messages and run no schedules until RestoreAgent.
func (c *Conn) RetireAgent(ctx context.Context, name string) error {
	return c.ask(ctx, "retire", func() error {
		return c.store.locked(func(*[]Bell) error {
			a := c.store.state.agents[name]
			if a == nil {
				return turnkeeper.ErrNotFound
			}
			if a.RetiredAt.IsZero() {
				a.RetiredAt = c.store.now()
			}
			return nil
		})
	})
}

// RestoreAgent undoes RetireAgent. Schedules continue with their next slots.
func (c *Conn) RestoreAgent(ctx context.Context, name string) error {
	return c.ask(ctx, "restore", func() error {
		return c.store.locked(func(rings *[]Bell) error {
			a := c.store.state.agents[name]
			if a == nil {
				return turnkeeper.ErrNotFound
			}
			a.RetiredAt = time.Time{}
			for key, sched := range c.store.state.schedules {
				if key.agent == name {
					sched.NextDue = time.Time{}
				}
			}
			*rings = append(*rings, Bell{Topic: TopicInbox})
			return nil
		})
	})
}

func (s *state) retired(agent string) bool {
	a := s.agents[agent]
	return a != nil && !a.RetiredAt.IsZero()
}

// moveLanes moves waiting messages to the current lanes of their agent, except those of
// sub-agents, and parks the turns that wait for a person in a lane that would now block others.
func (s *state) moveLanes(a *turnkeeper.AgentRegistration) {
	for _, lane := range lanesOf(s.waiting) {
		for _, m := range slices.Clone(s.waiting[lane]) {
			if now := laneOf(a, m.ConversationKey()); m.Agent == a.Name && m.Lane != now && s.parentOf(m.ID) == 0 {
				s.unsetWaiting(m)
				m.Lane = now
				s.setWaiting(m)
			}
		}
	}
	for _, lane := range lanesOf(s.open) {
		if t := s.open[lane]; t.Agent == a.Name && t.State == turnkeeper.TurnWaiting && t.home == "" {
			draft := t.draft()
			draft.park(s)
			s.setTurn(draft)
		}
	}
}

// laneNow returns the lane in which a message that begins to wait belongs: see turnkeeper.lane_now.
func (s *state) laneNow(m *turnkeeper.Message, lane turnkeeper.Lane) turnkeeper.Lane {
	if a := s.agents[m.Agent]; a != nil && s.parentOf(m.ID) == 0 {
		return laneOf(a, m.ConversationKey())
	}
	return lane
}

// laneWaits reports whether a message must not run in its lane yet because its agent's lanes were changed: a turn
// of its conversation is open in another lane or, if the agent is one lane, any turn of the agent. Of those that wait
// outside their lanes, or go back, only one that goes back and has a lower rank counts.
func (g *gate) laneWaits(m *turnkeeper.Message, own turnkeeper.Lane) bool {
	s := &g.s.state
	if s.parentOf(m.ID) != 0 {
		return false
	}
	for _, turn := range s.open {
		if turn.Agent == m.Agent && turn.homeLane() != own &&
			(turn.home == "" || g.goesBack(turn) && before(s.message(turn.MessageID), m)) &&
			(turn.ConversationKey() == m.ConversationKey() || !s.agents[m.Agent].LanePerConversation && s.parentOf(
				turn.MessageID) == 0) {
			return true
		}
	}
	return false
}

// Enqueue accepts a message. A repeat with the same key returns the first id.
// The refusals are those of storage: ErrEmptyMessage, ErrInvalidMessage,
// ErrUnknownAgent, ErrAgentRetired, ErrKeyConflict.
func (c *Conn) Enqueue(ctx context.Context, m turnkeeper.Submission) (id turnkeeper.MessageID, err error) {
	if err := m.Check(c.store.opts.MaxMessage); err != nil {
		return 0, err
	}
	err = c.ask(ctx, "enqueue", func() error {
		return c.store.locked(func(rings *[]Bell) error {
			id, err = c.store.accept(m, rings)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

func (s *Store) accept(m turnkeeper.Submission, rings *[]Bell) (turnkeeper.MessageID, error) {
	agent := s.state.agents[m.Agent]
	if agent == nil {
		return 0, fmt.Errorf("%w '%s'", turnkeeper.ErrUnknownAgent, m.Agent)
	}
	if m.Conversation == "" {
		m.Conversation = turnkeeper.DefaultConversation
	}
	if first, ok := s.state.keys[messageKey{m.Agent, m.User, m.Key}]; ok && m.Key != "" {
		known := s.state.message(first)
		if known.Body != m.Body || known.ConversationKey() != m.ConversationKey() {
			return 0, fmt.Errorf("%w (%d)", turnkeeper.ErrKeyConflict, first)
		}
		return first, nil
	}
	if !agent.RetiredAt.IsZero() {
		return 0, fmt.Errorf("%w: '%s' takes no new messages", turnkeeper.ErrAgentRetired, m.Agent)
	}
	now := s.now()
	due, err := m.DueFrom(now)
	if err != nil {
		return 0, err
	}
	row := &turnkeeper.Message{
		ID: s.state.nextMessage(), Agent: m.Agent, User: m.User, Conversation: m.Conversation, Body: m.Body, Key: m.Key,
		Priority: m.Priority, Trigger: turnkeeper.TriggerMessage, State: turnkeeper.MessageWaiting, DueAt: due,
		AcceptedAt: now, TraceParent: m.TraceParent,
	}
	row.Lane = laneOf(agent, row.ConversationKey())
	s.state.insertMessage(row)
	if m.Key != "" {
		s.state.keys[messageKey{m.Agent, m.User, m.Key}] = row.ID
	}
	*rings = append(*rings, Bell{Topic: TopicInbox})
	return row.ID, nil
}

// nextMessage allocates the next message ID, which is never reused.
func (s *state) nextMessage() turnkeeper.MessageID {
	s.messages = append(s.messages, nil)
	return turnkeeper.MessageID(len(s.messages))
}

func (s *state) insertMessage(m *turnkeeper.Message) {
	s.messages[m.ID-1] = m
	repeatLabels(s, m)
	s.setWaiting(m)
}

func laneOf(a *turnkeeper.AgentRegistration, of turnkeeper.ConversationKey) turnkeeper.Lane {
	if a.LanePerConversation {
		return of.Lane()
	}
	return turnkeeper.Lane(a.Name)
}

// Beat records a heartbeat of a worker process.
func (c *Conn) Beat(ctx context.Context, h presence.Heartbeat) error {
	return c.ask(ctx, "beat", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		now := c.store.now()
		known := c.store.state.workers[h.WorkerID]
		if known == nil {
			known = &h
			known.StartedAt = now
			c.store.state.workers[h.WorkerID] = known
		}
		known.BeatAt, known.Slots = now, h.Slots
		return nil
	})
}

// StopBeating records that a worker has stopped cleanly.
func (c *Conn) StopBeating(ctx context.Context, id turnkeeper.WorkerID) error {
	return c.ask(ctx, "stop beating", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		if known := c.store.state.workers[id]; known != nil {
			now := c.store.now()
			known.StoppedAt, known.BeatAt, known.Slots = now, now, 0
		}
		return nil
	})
}

// A Job asks a worker to run the turn of one grant.
type Job struct {
	ID      turnkeeper.JobID
	TurnID  turnkeeper.TurnID
	GrantID turnkeeper.GrantID
}

// Fetch takes at most limit jobs for a worker, oldest first. It records who took a job,
// so that the scheduler finds the turns of a silent worker.
func (c *Conn) Fetch(ctx context.Context, worker turnkeeper.WorkerID, limit int) (taken []Job, err error) {
	err = c.ask(ctx, "fetch", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		s := &c.store.state
		for _, lane := range lanesOf(s.held) { // jobs that are granted and not yet taken
			job := s.job(s.held[lane].jobID)
			if job == nil || job.state != "available" {
				continue
			}
			taken = append(taken, job.Job)
		}
		slices.SortFunc(taken, func(a, b Job) int { return int(a.ID - b.ID) })
		taken = taken[:min(len(taken), limit)]
		for _, t := range taken {
			job := s.job(t.ID)
			job.state, job.attemptedBy = "running", worker
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// Forget makes a taken job available again, as a crash of the database server may do.
func (s *tables) Forget(id turnkeeper.JobID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if job := s.state.job(id); job != nil && job.state == "running" {
		job.state = "available"
	}
}
