package prompt

import (
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// pasts remembers what is made of earlier turns.
type pasts struct {
	key historyKey // of the turn's chain
	// sizes for new epochs, because the models of a chain are asked one after the other
	sizes  map[sizeKey]pastLoad
	newest written // by the newest request that extends an epoch
}

type sizeKey struct {
	turn   turnkeeper.TurnID
	counts *Counts
	epoch  turnkeeper.EpochID
	form   recordForm
}

// load counts an earlier turn for a new epoch once.
func (k pasts) load(s *sizer, past turnlog.Past) pastLoad {
	key := sizeKey{past.TurnID, s.Counts, s.epoch.id, formOf(s.epoch.Epoch)}
	known, ok := k.sizes[key]
	if !ok {
		known = s.load(past)
		k.sizes[key] = known
	}
	return known
}

// A written is what an epoch shows of earlier turns, which later requests repeat.
type written struct {
	epoch    *epoch
	counts   *Counts
	turns    []turnkeeper.TurnID // that are written
	messages []inference.Message
	tokens   int
}

// pastMessages writes and counts the earlier turns of an epoch on record: those that no request of this process has
// shown.
func (p *plan) pastMessages(shown []turnlog.Past) (*written, error) {
	known := &p.s.pasts.newest
	if known.epoch == p.epoch && known.counts == p.Counts {
		return known, nil
	}
	*known = p.s.memory.histories.of(p.s.pasts.key, p.epoch, shown)
	in := input{turn: p.s.turn, shown: shown[len(known.turns):], rounds: p.at.Rounds, epoch: p.epoch}
	messages, err := in.pastMessages()
	if err != nil {
		return nil, err
	}
	known.messages = slices.Clip(append(known.messages, messages...))
	known.tokens += p.messages(messages)
	known.epoch, known.counts, known.turns = p.epoch, p.Counts, idsOf(shown)
	p.s.memory.histories.keep(p.s.pasts.key, *known)
	return known, nil
}

// histories keeps the newest written of each chain of a process. The zero value is empty. It is safe for concurrent
// use.
type histories struct {
	mu    sync.Mutex
	all   map[historyKey]written
	bytes int
}

// maxHistories is about the number of bytes that histories keep. The texts are usually those of the journal's cache.
const maxHistories = 8 << 20

// A historyKey identifies a chain.
type historyKey struct{ conversation, chain string }

// of returns what is written of the turns that an epoch shows: of none, if it is another epoch, or if the turns do not
// begin with those that are written.
func (h *histories) of(key historyKey, e *epoch, shown []turnlog.Past) written {
	h.mu.Lock()
	known := h.all[key]
	h.mu.Unlock()
	if n := len(known.turns); n == 0 || n > len(shown) || !slices.EqualFunc(shown[:n], known.turns, isTurn) ||
		!known.epoch.same(e) {
		return written{}
	}
	return known
}

// idsOf returns the ids of turns, or nil if there are none.
func idsOf(turns []turnlog.Past) (ids []turnkeeper.TurnID) {
	ids = slices.Grow(ids, len(turns))
	for _, past := range turns {
		ids = append(ids, past.TurnID)
	}
	return ids
}

// keep replaces what is written of a chain. More than a quarter of what is kept at all is not kept.
func (h *histories) keep(key historyKey, w written) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[historyKey]written{}
	}
	h.remove(key)
	size := w.size()
	if size > maxHistories/4 {
		return
	}
	for other := range h.all { // in random order: chains may take turns
		if h.bytes+size <= maxHistories {
			break
		}
		h.remove(other)
	}
	h.all[key] = w
	h.bytes += size
}

func (h *histories) remove(key historyKey) {
	h.bytes -= h.all[key].size()
	delete(h.all, key)
}

// size returns about the bytes of memory that messages take.
func (w written) size() (size int) {
	const ofMessage, ofCall = 200, 100 // without texts
	for _, m := range w.messages {
		size += ofMessage + len(m.Text) + len(m.Raw) + ofCall*len(m.Calls)
	}
	return size
}
