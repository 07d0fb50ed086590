package memory

import (
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/internal/granting"
)

// tables has the methods that read the tables at any time.
type tables struct {
	mu    sync.Mutex // guards all that a Store has
	state state
}

// Message returns a message of the inbox. ok is false if there is none.
func (s *tables) Message(id turnkeeper.MessageID) (m turnkeeper.Message, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := s.state.message(id); row != nil {
		return *row, true
	}
	return m, false
}

// Messages returns all messages, by ID.
func (s *tables) Messages() []turnkeeper.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []turnkeeper.Message
	for _, m := range s.state.messages {
		if m != nil {
			all = append(all, *m)
		}
	}
	return all
}

// Open returns how many messages are not closed.
func (s *tables) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := len(s.state.open)
	for _, waiting := range s.state.waiting {
		open += len(waiting)
	}
	return max(open, len(s.state.held))
}

// Replies returns the outbox.
func (s *tables) Replies() []turnkeeper.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.replies)
}

// ReplyTo returns the reply to a message, or false if there is none yet.
func (s *tables) ReplyTo(id turnkeeper.MessageID) (turnkeeper.Reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.replyOf(id)
}

// Turn returns a turn with its rounds, calls and events. ok is false if there is none.
func (s *tables) Turn(id turnkeeper.TurnID) (turn turnkeeper.Turn, rounds []turnkeeper.Round,
	events []turnkeeper.Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.state.turn(id)
	if row == nil {
		return turn, nil, nil, false
	}
	turn = row.Turn
	turn.Lane = row.homeLane() // as the view turns
	return turn, cloneRounds(row.rounds), slices.Clone(row.events), true
}

// Turns returns the ids of all turns, in order.
func (s *tables) Turns() []turnkeeper.TurnID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []turnkeeper.TurnID
	for _, t := range s.state.turns {
		if t != nil {
			all = append(all, t.ID)
		}
	}
	return all
}

// Grants returns the grant log, oldest first.
func (s *tables) Grants() []turnkeeper.Dispatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]turnkeeper.Dispatch, len(s.state.grants))
	for i, g := range s.state.grants {
		all[i] = g.Dispatch
	}
	return all
}

// Lease returns the lease of a lane, and false if it was never granted.
func (s *tables) Lease(lane turnkeeper.Lane) (granting.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.state.leases[lane]; l != nil {
		return l.Lease, true
	}
	return granting.Lease{}, false
}

// Starts returns how many starts of a call are on record.
func (s *tables) Starts(turn turnkeeper.TurnID, call turnkeeper.CallKey) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := s.state.turn(turn); row != nil {
		for _, start := range row.starts {
			if start.key == call {
				n++
			}
		}
	}
	return n
}
