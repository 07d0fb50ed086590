package journal

import (
	"context"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/kept"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// pasts keeps what histories show of the ended turns of conversations, which no longer changes. Without it, each turn
// would read and decode the same rows again.
type pasts struct {
	all kept.Map[turnkeeper.ConversationKey, conversation]
}

// A conversation is what the newest history of one shows. It never changes.
type conversation struct {
	turns []turnlog.Past
	sizes []int // of each turn
	bytes int   // their sum
}

// maxPasts is about the number of bytes of memory that a process keeps.
const maxPasts = 8 << 20

// ids returns the ids of the turns, not nil, which would be null in SQL.
func (c conversation) ids() []int64 {
	ids := make([]int64, len(c.turns))
	for i := range c.turns {
		ids[i] = int64(c.turns[i].TurnID)
	}
	return ids
}

// add adds a turn after the others. size is known, or 0.
func (c *conversation) add(past turnlog.Past, size int) {
	if size == 0 {
		size = sizeOf(past)
	}
	c.turns, c.sizes, c.bytes = append(c.turns, past), append(c.sizes, size), c.bytes+size
}

// keep keeps the newest turns of a history, those that take a quarter of what is kept at all, unless a newer one is
// kept: requests of older turns may be rebuilt at any time.
func (p *pasts) keep(key turnkeeper.ConversationKey, history conversation) {
	for history.bytes > maxPasts/4 {
		history.bytes -= history.sizes[0]
		history.turns, history.sizes = history.turns[1:], history.sizes[1:]
	}
	n, newer := len(history.turns), p.all.Get(key).turns
	if n > 0 && (len(newer) == 0 || newer[len(newer)-1].TurnID <= history.turns[n-1].TurnID) {
		p.all.Put(key, history, history.bytes, maxPasts)
	}
}

// history returns the turns that were read, without their journals, with the rest: what is known of them, and the
// journals of the others. Both are sorted by id.
func (s *Store) history(ctx context.Context, read []dbsqlc.PastTurnsRow,
	known conversation) (history conversation, err error) {
	history.turns, history.sizes = make([]turnlog.Past, 0, len(read)), make([]int, 0, len(read))
	var unknown []int64
	for _, row := range read {
		if _, found := known.find(row.ID); !found {
			unknown = append(unknown, row.ID)
		}
	}
	rounds, err := readPast(ctx, s.db.Q, unknown)
	if err != nil {
		return history, err
	}
	for _, row := range read {
		if i, found := known.find(row.ID); found {
			history.add(known.turns[i], known.sizes[i])
		} else {
			history.add(pastOf(row, rounds[row.ID]), 0)
		}
	}
	return history, nil
}

// find returns the index of a turn, and whether it is there.
func (c conversation) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(c.turns, turnkeeper.TurnID(id), func(p turnlog.Past, id turnkeeper.TurnID) int {
		return int(p.TurnID - id)
	})
}

func pastOf(row dbsqlc.PastTurnsRow, rounds []turnkeeper.Round) turnlog.Past {
	return turnlog.Past{
		TurnID: turnkeeper.TurnID(row.ID), Body: row.Body, Reply: row.Reply, Silent: row.Silent,
		State: turnkeeper.TurnState(row.State), ErrorClass: row.ErrorClass, Rounds: rounds,
	}
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

// sizeOf returns about the bytes of memory that a turn takes.
func sizeOf(past turnlog.Past) int {
	const ofTurn, ofRound, ofRecipe, ofCall = 200, 250, 600, 400 // without texts
	size := ofTurn + len(past.Body) + len(past.Reply)
	for _, r := range past.Rounds {
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
