package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// A spawnRow is a call that gave work to a sub-agent.
type spawnRow struct {
	turnlog.SpawnEnd
	parent   turnkeeper.TurnID
	key      turnkeeper.CallKey
	root     turnkeeper.TurnID
	agents   []string // the path from the root's agent to this one
	limits   turnlog.TreeLimits
	deadline time.Time // for the reply
	since    time.Time
	ended    bool // it has its reply, or was refused
	notified bool // the call has its result, or no longer waits for one
	dropped  bool // the call stopped waiting before the reply
}

// NewMessage allocates the id of a message to a sub-agent.
func (j *Journal) NewMessage(ctx context.Context) (id turnkeeper.MessageID, err error) {
	err = patiently(ctx, func() error {
		return j.conn.ask(ctx, "new message", func() error {
			j.s.mu.Lock()
			defer j.s.mu.Unlock()
			id = j.s.state.nextMessage()
			return nil
		})
	})
	return id, err
}

// awaitReply makes a call that was just started await the reply of a sub-agent.
func (t *turnRow) awaitReply(call *turnkeeper.ToolCall) {
	call.Awaited = true
	t.awaited = append(t.awaited, awaitedRow{key: call.Key, nonce: call.Nonce, spawned: true})
}

// spawn starts the sub-agents of calls, as part of the write that records their starts.
func (s *Store) spawn(parent turnkeeper.TurnID, starts []turnlog.CallStart, rings *[]Bell) {
	for _, start := range starts {
		if start.Spawn != nil {
			s.spawnOne(s.state.turn(parent), start.Key, *start.Spawn, rings)
		}
	}
}

func (s *Store) spawnOne(parent *turnRow, key turnkeeper.CallKey, spawn turnlog.Spawn, rings *[]Bell) {
	st, now := &s.state, s.now()
	row := &spawnRow{
		SpawnEnd: turnlog.SpawnEnd{Agent: spawn.Agent, Message: spawn.Message}, parent: parent.ID, key: key,
		root:   spawn.Root,
		agents: spawn.Agents, limits: spawn.Limits, since: now, deadline: now.Add(spawn.Within),
	}
	row.Failure = st.refusal(spawn, s.opts.MaxMessage)
	st.spawned = append(st.spawned, row)
	if row.Failure != "" {
		row.Message, row.ended = 0, true
		s.notifyParent(row, nil, rings)
		return
	}
	above := st.message(parent.MessageID)
	own := turnkeeper.ConversationKey{Agent: spawn.Agent, User: above.User,
		Name: turnlog.SpawnConversation(parent.ID, key)}
	due := now.Truncate(time.Second)
	if above.DueAt.Before(due) {
		due = above.DueAt
	}
	st.insertMessage(&turnkeeper.Message{
		ID: spawn.Message, Agent: own.Agent, User: own.User, Conversation: own.Name, Lane: own.Lane(),
		Body: spawn.Task, Priority: above.Priority, Trigger: turnkeeper.TriggerMessage,
		State: turnkeeper.MessageWaiting, DueAt: due,
		AcceptedAt: now, TraceParent: cmp.Or(spawn.TraceParent, above.TraceParent),
	})
	if s.bugs.has(BugSpawnTwice) {
		twin := *st.message(spawn.Message)
		twin.ID = st.nextMessage()
		twin.Conversation += "-again"
		twin.Lane += "-again"
		st.insertMessage(&twin)
	}
	*rings = append(*rings, Bell{Topic: TopicInbox})
}

func (s *state) refusal(spawn turnlog.Spawn, maxMessage int) turnlog.SpawnFailure {
	siblings := 0
	limit := spawn.Limits.MaxAgents
	for _, row := range s.spawned {
		if row.root == spawn.Root && row.Message != 0 {
			siblings++
			limit = row.limits.MaxAgents
		}
	}
	switch {
	case s.agents[spawn.Agent] == nil:
		return turnlog.SpawnUnknownAgent
	case maxMessage > 0 && len(spawn.Task) > maxMessage:
		return turnlog.SpawnTooLong
	case siblings >= limit:
		return turnlog.SpawnTreeFull
	default:
		return ""
	}
}

// notifyParent delivers the result of a sub-agent to its parent's call. If a transaction other than
// own holds the lock of the parent's row, it does nothing, and a later tick delivers the result.
func (s *Store) notifyParent(row *spawnRow, own *tx, rings *[]Bell) {
	parent := s.state.turn(row.parent)
	if _, busy := parent.held.blocks(); busy && parent.held != own {
		return
	}
	if row.notified {
		return
	}
	row.notified = true
	if s.bugs.has(BugReplyUndelivered) {
		return
	}
	draft := parent.draft()
	if a := draft.await(row.key); !a.closed && a.arrived == nil {
		s.arrive(draft, a, turnlog.CallResult{
			State: row.State(), Preview: fmt.Sprintf("the agent %s: %s%s", row.Agent, row.Outcome, row.Failure),
			Duration: max(s.now().Sub(row.since), 0),
		}, a.nonce, rings)
		s.state.setTurn(draft)
	}
}

// noteReply delivers a reply to the call that sent its message, if there is one.
func (s *Store) noteReply(r turnkeeper.Reply, stop turnkeeper.StopReason, rings *[]Bell) {
	for _, row := range s.state.spawned {
		if row.Message != r.MessageID || row.ended {
			continue
		}
		row.ended, row.Outcome, row.Turn, row.Stop = true, r.Outcome, r.TurnID, stop
		s.notifyParent(row, nil, rings)
		return
	}
}

// dropSpawned drops the sub-agents of calls that were answered without their replies.
func (s *state) dropSpawned(t *turnRow) {
	for _, row := range s.spawned {
		if row.parent != t.ID || row.ended || row.dropped || !t.await(row.key).closed {
			continue
		}
		row.dropped, row.notified = true, true
		if child := s.turn(s.message(row.Message).TurnID); child != nil && !child.State.Terminal() {
			s.ends[child.ID] = turnlog.EndCancel
		}
	}
}

// endOf returns the result of the sub-agent that a call started, in the form that the calling
// turn reads, or nil if the call started no sub-agent.
func (s *state) endOf(turn turnkeeper.TurnID, key turnkeeper.CallKey) *turnlog.SpawnEnd {
	for _, row := range s.spawned {
		if row.parent != turn || row.key != key {
			continue
		}
		end := row.SpawnEnd
		if m := s.message(row.Message); m != nil {
			end.Open = m.ClosedAt.IsZero()
			if end.Turn == 0 {
				end.Turn = m.TurnID
			}
			if reply, ok := s.replyOf(m.ID); ok {
				end.Reply, end.Replied, end.Calls = reply.Body, true, reply.Calls
				end.Labels = labelsOfReply(s, m.ID)
			}
		}
		return &end
	}
	return nil
}

// lineageOf returns who spawned the turn of a message.
func (s *state) lineageOf(m turnkeeper.MessageID) turnlog.Lineage {
	for _, row := range s.spawned {
		if row.Message == m && m != 0 {
			return turnlog.Lineage{Root: row.root, Parent: row.parent, Call: row.key, Agents: slices.Clone(row.agents),
				Limits: row.limits}
		}
	}
	return turnlog.Lineage{}
}

// spawnsToSettle reports whether a tick has sub-agents to settle.
func (s *state) spawnsToSettle(now time.Time) bool {
	return slices.ContainsFunc(s.spawned, func(r *spawnRow) bool {
		return r.ended && !r.notified || !r.ended && (r.dropped || !r.notified && !r.deadline.After(now))
	})
}

func (t *tick) SettleSpawned(_ context.Context, timely bool, limit int) (n int, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, row := range s.spawned {
			if n >= limit {
				break
			}
			switch {
			case !row.ended && (row.dropped || t.ends[row.parent]): // overdue or not
				if t.cancelDropped(s, row) {
					n++
				}
			case row.ended && !row.notified, timely && !row.ended && !row.notified && !row.deadline.After(now):
				if parent := s.turn(row.parent); t.mayLock(parent) {
					t.again[parent.ID] = t.again[parent.ID] || parent.State == turnkeeper.TurnWaiting
					t.later(func(rings *[]Bell) { t.tell(row, rings) })
					n++
				}
			}
		}
	})
	return n, err
}

// free reports whether no other transaction has the lock of a turn's row.
func (t *tick) free(row *turnRow) bool {
	_, busy := row.held.blocks()
	return !busy || row.held == t.tx
}

// mayLock takes the lock of a turn's row for this tick if it is free, and reports whether it did.
func (t *tick) mayLock(row *turnRow) bool {
	if !t.free(row) {
		return false
	}
	row.held = t.tx
	return true
}

func (t *tick) tell(row *spawnRow, rings *[]Bell) {
	if !row.ended {
		row.Failure = turnlog.SpawnTimeout
	}
	t.s.notifyParent(row, t.tx, rings)
}

// cancelDropped closes a dropped sub-agent and those below it, or, if it runs, requests its cancellation. It reports
// whether it closes it.
func (t *tick) cancelDropped(s *state, row *spawnRow) bool {
	m := s.message(row.Message)
	if m.State == turnkeeper.MessageWaiting {
		t.gone[m.ID] = true
		t.later(func(rings *[]Bell) {
			if m.State == turnkeeper.MessageWaiting {
				t.s.cancelWaiting(m, rings)
			}
		})
		return true
	}
	child := s.turn(m.TurnID)
	if child == nil || child.State.Terminal() || t.ends[child.ID] {
		return false
	}
	if child.State == turnkeeper.TurnRunning && !t.freed[child.Lane] {
		if !s.ends.cancelled(child.ID) {
			t.later(func(*[]Bell) { t.s.state.ends[child.ID] = turnlog.EndCancel })
		}
		return false
	}
	if !t.mayLock(child) {
		return false
	}
	t.gone[m.ID] = true
	t.later(func(rings *[]Bell) {
		t.s.state.ends[child.ID] = turnlog.EndCancel
		if draft := t.s.state.turn(child.ID).draft(); draft.State == turnkeeper.TurnQueued ||
			draft.State == turnkeeper.TurnWaiting {
			t.s.closeCancelled(draft, rings)
			t.s.state.setTurn(draft)
		}
	})
	for _, below := range s.spawned {
		if below.parent == child.ID && !below.ended && !below.dropped {
			t.cancelDropped(s, below)
		}
	}
	return true
}

// parentOf returns the turn that a message's sub-agent works for, or 0 if the message
// is not for a sub-agent.
func (s *state) parentOf(message turnkeeper.MessageID) turnkeeper.TurnID {
	for _, row := range s.spawned {
		if row.Message == message {
			return row.parent
		}
	}
	return 0
}
