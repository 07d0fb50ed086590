package journal

import (
	"context"
	"sync"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// withJournals reads what a history shows of the journals of earlier turns, which must be sorted by id.
func (s *Store) withJournals(ctx context.Context, past []dbsqlc.PastTurnsRow) ([]turnlog.Past, error) {
	if len(past) == 0 {
		return nil, nil
	}
	shown := s.pasts.get(past)
	var unknown []int64
	for _, p := range past {
		if _, ok := shown[p.ID]; !ok {
			unknown = append(unknown, p.ID)
		}
	}
	read, err := readPast(ctx, s.db.Q, unknown)
	if err != nil {
		return nil, err
	}
	for id, rounds := range read {
		shown[id] = s.pasts.put(id, rounds)
	}
	history := make([]turnlog.Past, len(past))
	for i, p := range past {
		history[i] = turnlog.Past{
			TurnID: turnkeeper.TurnID(p.ID), Body: p.Body, Reply: p.Reply, Silent: p.Silent,
			State: turnkeeper.TurnState(p.State), ErrorClass: p.ErrorClass, Rounds: shown[p.ID],
		}
	}
	return history, nil
}

// readPast reads the rounds of ended turns. The ids must be sorted.
func readPast(ctx context.Context, q *dbsqlc.Queries, ids []int64) (map[int64][]turnkeeper.Round, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	writes, err := q.PastJournals(ctx, ids)
	if err != nil {
		return nil, pg.Translate(err)
	}
	read := map[int64][]turnkeeper.Round{}
	for _, id := range ids {
		n := 0
		for n < len(writes) && writes[n].TurnID == id {
			n++
		}
		read[id] = pastRounds(writes[:n])
		writes = writes[n:]
	}
	return read, nil
}

// pasts caches what histories show of ended turns, which no longer change. Without it, each turn of a conversation
// would decode the same journals again. It holds about maxPasts bytes, and evicts any turns: the turns of a
// conversation read the same ones in the same order, so evicting the oldest first would evict each one shortly before
// it is read.
type pasts struct {
	mu    sync.Mutex
	turns map[int64][]turnkeeper.Round // immutable
	bytes int
}

const maxPasts = 8 << 20

// get returns the cached ones of the turns.
func (p *pasts) get(past []dbsqlc.PastTurnsRow) map[int64][]turnkeeper.Round {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[int64][]turnkeeper.Round{}
	for _, row := range past {
		if rounds, ok := p.turns[row.ID]; ok {
			known[row.ID] = rounds
		}
	}
	return known
}

// put caches the rounds of a turn, and returns them.
func (p *pasts) put(id int64, rounds []turnkeeper.Round) []turnkeeper.Round {
	size := sizeOf(rounds)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.turns[id]; known || size > maxPasts/4 {
		return rounds
	}
	if p.turns == nil {
		p.turns = map[int64][]turnkeeper.Round{}
	}
	for other, those := range p.turns { // in random order
		if p.bytes+size <= maxPasts {
			break
		}
		delete(p.turns, other)
		p.bytes -= sizeOf(those)
	}
	p.turns[id], p.bytes = rounds, p.bytes+size
	return rounds
}

// sizeOf returns about the bytes of memory that rounds take.
func sizeOf(rounds []turnkeeper.Round) int {
	const ofTurn, ofRound, ofRecipe, ofCall = 100, 250, 600, 400 // without texts
	size := ofTurn
	for _, r := range rounds {
		size += ofRound + len(r.Text) + len(r.Raw)
		if r.Recipe != nil {
			size += ofRecipe + len(r.Recipe.Notice)
		}
		for _, c := range r.Calls {
			size += ofCall + len(c.Name) + len(c.Arguments) + len(c.Shown)
			if c.Preview != c.Shown { // else they share their text
				size += len(c.Preview)
			}
		}
	}
	return size
}
