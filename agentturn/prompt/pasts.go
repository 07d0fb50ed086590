package prompt

import (
	"slices"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/kept"
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

// A written is what an epoch shows of earlier turns, which later requests repeat. The lists never change.
type written struct {
	epoch    *epoch
	counts   *Counts
	turns    []turnkeeper.TurnID          // that are written
	messages kept.List[inference.Message] // the system message, and the turns
	callIDs  kept.List[string]            // of the turns, on the wire
	tokens   int                          // of the turns
	bytes    int                          // of memory, about
	newest   kept.List[inference.Message] // of the newest request, which usually goes on after messages
}

// pastMessages writes and counts the earlier turns of an epoch on record: those that no request of this process has
// shown.
func (p *plan) pastMessages(shown []turnlog.Past) (*written, error) {
	known := &p.s.pasts.newest
	if known.epoch == p.epoch && known.counts == p.Counts {
		return known, nil
	}
	*known = p.s.memory.writtenOf(p.s.pasts.key, p.epoch, shown)
	in := input{source: p.s.source, shown: shown[len(known.turns):], rounds: p.at.Rounds, epoch: p.epoch}
	messages, err := in.pastMessages()
	if err != nil {
		return nil, err
	}
	if known.messages.Len() == 0 {
		known.messages = known.messages.Append(in.system())
	}
	known.messages = known.messages.Grow(known.newest, inference.Message.Equal, messages...)
	known.callIDs = known.callIDs.Append(callIDs(in.shown)...)
	known.tokens += p.messages(messages)
	known.bytes += sizeOf(messages)
	known.epoch, known.counts, known.turns = p.epoch, p.Counts, idsOf(shown)
	return known, nil
}

// callIDs returns the ids of the calls of turns on the wire.
func callIDs(turns []turnlog.Past) (ids []string) {
	for _, past := range turns {
		for call := range eachCall(past.Rounds) {
			ids = append(ids, call.WireID)
		}
	}
	return ids
}

// sizeOf returns about the bytes of memory that messages take.
func sizeOf(messages []inference.Message) (size int) {
	const ofMessage, ofCall = 200, 100 // without texts
	for _, m := range messages {
		size += ofMessage + len(m.Text) + len(m.Raw) + ofCall*len(m.Calls)
	}
	return size
}

// append returns the messages of a request: those of the earlier turns, and others.
func (w *written) append(more []inference.Message) []inference.Message {
	w.newest = w.messages.Grow(w.newest, inference.Message.Equal, more...)
	return w.newest.Items()
}

// maxWritten is about the number of bytes that a process keeps of what is written. The texts are usually those of the
// journal's cache.
const maxWritten = 8 << 20

// A historyKey identifies a chain.
type historyKey struct{ conversation, chain string }

// writtenOf returns what is written of the turns that an epoch shows: nothing, if it is another epoch, or if the turns
// do not begin with those that are written.
func (m *Memory) writtenOf(key historyKey, e *epoch, shown []turnlog.Past) written {
	known := m.histories.Get(key)
	if n := len(known.turns); n == 0 || n > len(shown) || !slices.EqualFunc(shown[:n], known.turns, isTurn) ||
		!known.epoch.same(e) {
		return written{}
	}
	return known
}

// keep replaces what is written of a chain.
func (m *Memory) keep(key historyKey, w written) { m.histories.Put(key, w, w.bytes, maxWritten) }

// idsOf returns the ids of turns, or nil if there are none.
func idsOf(turns []turnlog.Past) (ids []turnkeeper.TurnID) {
	ids = slices.Grow(ids, len(turns))
	for _, past := range turns {
		ids = append(ids, past.TurnID)
	}
	return ids
}
