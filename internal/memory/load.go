package memory

import (
	"context"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// Load reads a turn and its journal, for the holder of grant. It fails with turnkeeper.ErrFenced if
// the turn no longer has that grant.
func (c *Conn) Load(ctx context.Context, turn turnkeeper.TurnID,
	grant turnkeeper.GrantID) (record *turnlog.Record, err error) {
	err = c.ask(ctx, "load", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		row := c.store.state.turn(turn)
		if row == nil || row.State != turnkeeper.TurnRunning || row.GrantID != grant {
			return turnkeeper.ErrFenced
		}
		record = c.store.recordOf(row)
		return nil
	})
	return record, err
}

// LoadPatiently is like Load, but retries while the store is unavailable, until ctx ends.
func (c *Conn) LoadPatiently(ctx context.Context, turn turnkeeper.TurnID,
	grant turnkeeper.GrantID) (record *turnlog.Record, err error) {
	err = patiently(ctx, func() error {
		record, err = c.Load(ctx, turn, grant)
		return err
	})
	return record, err
}

func (s *Store) recordOf(row *turnRow) *turnlog.Record {
	now := s.now()
	r := &turnlog.Record{
		Turn: row.Turn, Message: *s.state.message(row.MessageID),
		Definition: slices.Clone(s.state.definitions[row.DefinitionHash]),
		Rounds:     cloneRounds(row.rounds), Entries: row.entries(), NextBlock: 1,
		Level: s.state.levels.ofRules(row.Agent, now), Down: downNow(s, now),
		Waited:   serviceWait(&s.state, row.MessageID, row, now),
		Suspects: s.state.models.suspectsOf(row.MessageID), ReadySince: row.CreatedAt,
		End: wantedEnd(&s.state, row.ID), Lineage: s.state.lineageOf(row.MessageID),
		Remaining: row.LeaseUntil.Sub(now), Elapsed: now.Sub(row.GrantedAt),
	}
	for _, a := range row.awaited {
		if a.arrivedAt.After(r.ReadySince) {
			r.ReadySince = a.arrivedAt
		}
	}
	if s.bugs.has(BugFailedProbes) {
		r.Suspects = nil
	}
	r.Asks, r.Gates = slices.Clone(row.asks), slices.Clone(row.gates)
	if l := s.state.leases[row.Lane]; l != nil {
		r.Failures = l.Failures
	}
	if s.bugs.has(BugStartTwice) || s.bugs.has(BugJournalByAttempt) {
		s.bugs.forgetStarts(r.Rounds)
	}
	var started, rolledBack int64
	for _, e := range row.events {
		r.NextBlock = max(r.NextBlock, e.Block+1)
		switch e.Type {
		case turnkeeper.EventRoundStart:
			started = e.Seq
			r.OpenRound = max(r.OpenRound, e.Round)
		case turnkeeper.EventRoundRollback:
			rolledBack = e.Seq
		default:
		}
	}
	if r.OpenRound <= len(r.Rounds) || started < rolledBack {
		r.OpenRound = 0
	}
	r.History, r.Older = historyOf(&s.state, row)
	r.LastRun = lastRun(&s.state, row)
	if all := s.state.summaries[row.ConversationKey()]; len(all) > 0 {
		r.Summary = all[len(all)-1]
	}
	r.Labels = s.state.labels.of(r)
	return r
}

// forgetStarts implements what a dispatch reads with BugStartTwice or BugJournalByAttempt.
func (b Bug) forgetStarts(rounds []turnkeeper.Round) {
	for i := range rounds {
		for j := range rounds[i].Calls {
			call := &rounds[i].Calls[j]
			switch {
			case call.State != turnkeeper.CallStarted:
			case b.has(BugStartTwice):
				call.Effect = turnkeeper.EffectKeyed
			default:
				call.State, call.Starts, call.Nonce = turnkeeper.CallPlanned, 0, ""
			}
		}
	}
}

// historyOf returns the newest turns of the conversation before a turn, oldest first, and how many are older.
func historyOf(s *state, row *turnRow) (past []turnlog.Past, older int) {
	for i := int(row.ID) - 2; i >= 0 && older < turnlog.CountedTurns; i-- {
		t := s.turns[i]
		switch {
		case t.ConversationKey() != row.ConversationKey():
		case len(past) == turnlog.PastTurns:
			older++
		case inHistory(s, t):
			past = append(past, pastOf(s, t))
		}
	}
	slices.Reverse(past)
	return past, older
}

// inHistory reports whether the turn is part of the history of later turns. It follows the
// view history_turns.
func inHistory(s *state, t *turnRow) bool {
	switch t.State {
	case turnkeeper.TurnSucceeded, turnkeeper.TurnDegraded:
		return true
	case turnkeeper.TurnCancelled:
		return t.Dispatches > 0
	case turnkeeper.TurnFailed:
		m := s.message(t.MessageID)
		return m.State == turnkeeper.MessageFailed && m.TurnID == t.ID || slices.ContainsFunc(t.starts,
			func(start startRow) bool {
				return t.call(start.key).Effect != turnkeeper.EffectNone
			})
	default:
		return false
	}
}

// lastRun returns the previous run of a turn's schedule.
func lastRun(s *state, row *turnRow) *turnlog.Past {
	schedule := s.message(row.MessageID).Schedule
	if schedule == "" {
		return nil
	}
	var last *turnRow
	var slot time.Time
	for i := int(row.ID) - 2; i >= 0; i-- {
		t := s.turns[i]
		m := s.message(t.MessageID)
		if t.ConversationKey() == row.ConversationKey() && m.Schedule == schedule && inHistory(s, t) &&
			(last == nil || m.Slot.After(slot)) {
			last, slot = t, m.Slot
		}
	}
	if last == nil {
		return nil
	}
	past := pastOf(s, last)
	return &past
}

func pastOf(s *state, t *turnRow) turnlog.Past {
	p := turnlog.Past{
		TurnID: t.ID, Body: s.message(t.MessageID).Body, Rounds: cloneRounds(t.rounds),
		Reply: t.InnerDialogue, Silent: true,
		State: t.State, ErrorClass: t.ErrorClass,
	}
	if reply, ok := s.replyOf(t.MessageID); ok && reply.TurnID == t.ID {
		p.Reply, p.Silent = reply.Body, false
	}
	return p
}

// RequestParts returns parts of requests by their hashes. It omits unknown hashes.
func (c *Conn) RequestParts(ctx context.Context, hashes ...string) (parts map[string]string, err error) {
	err = c.ask(ctx, "request parts", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		parts = map[string]string{}
		for _, hash := range hashes {
			if content, ok := c.store.state.parts[hash]; ok {
				parts[hash] = content
			}
		}
		return nil
	})
	return parts, err
}

func (s *state) replyOf(id turnkeeper.MessageID) (turnkeeper.Reply, bool) {
	for i := len(s.replies) - 1; i >= 0; i-- {
		if s.replies[i].MessageID == id {
			return s.replies[i], true
		}
	}
	return turnkeeper.Reply{}, false
}

// RecentCalls lists ended calls of the agent with this name and arguments hash
// that ended within the window, newest first, at most 20, among those with the newest 50 starts.
func (c *Conn) RecentCalls(ctx context.Context, agent, name, argsHash string,
	within time.Duration) (recent []turnlog.PastCall, err error) {
	err = c.ask(ctx, "recent calls", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		now := c.store.now()
		starts := 0
		for i := len(c.store.state.turns) - 1; i >= 0 && len(recent) < 20 && starts < 50; i-- {
			t := c.store.state.turns[i]
			if t.Agent != agent || t.EndedAt.Before(now.Add(-within)) && t.State.Terminal() {
				continue
			}
			for _, call := range t.callsOf(name, argsHash) {
				starts += call.Starts
				ended := call.Starts > 0 && (call.State == turnkeeper.CallSucceeded ||
					call.State == turnkeeper.CallFailed)
				if ended && call.EndedAt.After(now.Add(-within)) {
					recent = append(recent, turnlog.PastCall{Succeeded: call.State == turnkeeper.CallSucceeded,
						Ago: now.Sub(call.EndedAt)})
				}
			}
		}
		slices.SortStableFunc(recent, func(a, b turnlog.PastCall) int { return int(a.Ago - b.Ago) })
		return nil
	})
	return recent[:min(len(recent), 20)], err
}

// callsOf returns the calls of a turn with a name and arguments.
func (t *turnRow) callsOf(name, argsHash string) (calls []turnkeeper.ToolCall) {
	for _, round := range t.rounds {
		for _, call := range round.Calls {
			if call.Name == name && call.ArgsHash == argsHash {
				calls = append(calls, call)
			}
		}
	}
	return calls
}
