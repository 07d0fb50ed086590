package journal

import (
	"context"
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// withJournals reads the journals of earlier turns, which must be sorted by id: what a
// history shows, and the recipes of the newest turn, which calibrate token counts.
func (s *Store) withJournals(ctx context.Context, past []dbsqlc.PastTurnsRow) ([]turnlog.Past, error) {
	if len(past) == 0 {
		return nil, nil
	}
	known := s.pasts.get(past)
	var unknown []int64
	for _, p := range past {
		if _, ok := known[p.ID]; !ok {
			unknown = append(unknown, p.ID)
		}
	}
	if len(unknown) > 0 {
		writes, err := s.db.Q.PastJournals(ctx, unknown)
		if err != nil {
			return nil, pg.Translate(err)
		}
		for _, id := range unknown {
			n := 0
			for n < len(writes) && writes[n].TurnID == id {
				n++
			}
			known[id] = s.pasts.put(id, pastRounds(writes[:n]))
			writes = writes[n:]
		}
	}
	history := make([]turnlog.Past, len(past))
	newest := true // of the turns with rounds
	for i, p := range slices.Backward(past) {
		history[i] = turnlog.Past{
			TurnID: turnkeeper.TurnID(p.ID), Body: p.Body, Reply: p.Reply, Silent: p.Silent,
			State: turnkeeper.TurnState(p.State), ErrorClass: p.ErrorClass, Rounds: known[p.ID].rounds,
		}
		if newest && len(known[p.ID].rounds) > 0 {
			history[i].Rounds, newest = known[p.ID].withRecipes, false
		}
	}
	return history, nil
}

// pasts caches what histories show of ended turns. Without it, each turn of a conversation would decode the same journals
// again. It holds at most maxPasts bytes of text, and evicts the oldest entries first.
type pasts struct {
	mu    sync.Mutex
	turns map[int64]pastTurn
	order []int64 // of turns, as they came
	bytes int
}

// A pastTurn holds the rounds of a turn. They are immutable.
type pastTurn struct {
	rounds      []turnkeeper.Round
	withRecipes []turnkeeper.Round
	bytes       int
}

const maxPasts = 2 << 20

// get returns the cached ones of the turns.
func (p *pasts) get(past []dbsqlc.PastTurnsRow) map[int64]pastTurn {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[int64]pastTurn{}
	for _, row := range past {
		if turn, ok := p.turns[row.ID]; ok {
			known[row.ID] = turn
		}
	}
	return known
}

// put caches a turn, given its rounds with recipes, and returns it.
func (p *pasts) put(id int64, rounds []turnkeeper.Round) pastTurn {
	const overhead = 400 // of a call, and a third of a round, roughly
	turn := pastTurn{slices.Clone(rounds), rounds, overhead}
	for i, r := range rounds {
		turn.rounds[i].Recipe = nil
		turn.bytes += 3*overhead + len(r.Text) + len(r.Raw)
		for _, c := range r.Calls {
			turn.bytes += overhead + len(c.Name) + len(c.Arguments) + len(c.Shown) + len(c.Preview)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.turns[id]; known || turn.bytes > maxPasts/4 {
		return turn
	}
	if p.turns == nil {
		p.turns = map[int64]pastTurn{}
	}
	p.turns[id], p.order, p.bytes = turn, append(p.order, id), p.bytes+turn.bytes
	for p.bytes > maxPasts {
		p.bytes -= p.turns[p.order[0]].bytes
		delete(p.turns, p.order[0])
		p.order = p.order[1:]
	}
	return turn
}
