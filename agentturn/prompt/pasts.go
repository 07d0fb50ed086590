package prompt

import (
	"slices"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// pasts remembers what is made of earlier turns.
type pasts struct {
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

// A written is what an epoch shows of earlier turns, which all requests of a turn repeat.
type written struct {
	epoch    *epoch
	counts   *Counts
	messages []inference.Message
	tokens   int
}

// pastMessages writes and counts the earlier turns of an epoch on record, once.
func (p *plan) pastMessages(shown []turnlog.Past) (*written, error) {
	known := &p.s.pasts.newest
	if known.epoch == p.epoch && known.counts == p.Counts {
		return known, nil
	}
	in := input{turn: p.s.turn, shown: shown, rounds: p.at.Rounds, epoch: p.epoch}
	messages, err := in.pastMessages()
	if err != nil {
		return nil, err
	}
	*known = written{p.epoch, p.Counts, slices.Clip(messages), p.messages(messages)}
	return known, nil
}
