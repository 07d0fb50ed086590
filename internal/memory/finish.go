package memory

import (
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// wantedEnds are the requests to end turns.
type wantedEnds map[turnkeeper.TurnID]turnlog.WantedEnd

// cancelled reports whether there is a request to cancel the turn.
func (e wantedEnds) cancelled(id turnkeeper.TurnID) bool { return e[id] == turnlog.EndCancel }

// wantedEnd returns the end that was requested for a turn, for an earlier one of its message, or, if that is to finish,
// for one above it: see turnkeeper.requested_end.
func wantedEnd(s *state, id turnkeeper.TurnID) turnlog.WantedEnd {
	if s.ends.cancelled(id) {
		return turnlog.EndCancel
	}
	for id != 0 {
		message := s.turn(id).MessageID
		if slices.ContainsFunc(s.turns, func(t *turnRow) bool {
			return t.MessageID == message && s.ends[t.ID] == turnlog.EndFinish
		}) {
			return turnlog.EndFinish
		}
		id = s.parentOf(message)
	}
	return ""
}

// finishBelow lets the open turns of a turn's sub-agents finish too.
func finishBelow(s *Store, id turnkeeper.TurnID, rings *[]Bell) {
	for _, row := range s.state.spawned {
		if m := s.state.message(row.Message); row.parent == id && !row.ended && m != nil && m.TurnID != 0 {
			_, _ = s.endTurn(m.TurnID, turnlog.EndFinish, rings) // it may have ended
		}
	}
}

// waitsInVain reports whether a turn that is to finish waits for what that stops: see turnkeeper.waits_in_vain.
func (t *turnRow) waitsInVain() bool {
	asks, _ := t.asksPerson()
	return asks || slices.ContainsFunc(t.awaited, func(a awaitedRow) bool {
		return !a.closed && t.call(a.key).Effect == turnkeeper.EffectNone
	})
}

// hurry lets a turn that no worker runs go on to its last round: see turnkeeper.hurry_turn. t is a draft of it.
func hurry(s *Store, t *turnRow, rings *[]Bell) {
	t.withdrawAsks(s.now())
	if len(t.waitsFor) > 0 {
		return
	}
	t.DueAt = time.Time{}
	s.wake(t, rings)
	*rings = append(*rings, Bell{Topic: TopicInbox})
}
