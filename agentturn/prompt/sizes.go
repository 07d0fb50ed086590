package prompt

import (
	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// sizes remembers the sizes of earlier turns and of tools, which all requests of a turn repeat.
type sizes map[sizeKey]pastLoad

type sizeKey struct {
	turn   turnkeeper.TurnID // 0: the tools
	counts *Counts
	epoch  turnkeeper.EpochID
	form   recordForm
	begins bool // with and without results, for a new epoch
}

func keyOf(s *sizer, turn turnkeeper.TurnID, begins bool) sizeKey {
	return sizeKey{turn, s.Counts, s.epoch.id, formOf(s.epoch.Epoch), begins}
}

// of counts an earlier turn of an epoch once.
func (k sizes) of(s *sizer, past turnlog.Past) int {
	key := keyOf(s, past.TurnID, false)
	known, ok := k[key]
	if !ok {
		known.whole = s.past(past)
		k[key] = known
	}
	return known.whole
}

// load counts an earlier turn for a new epoch once.
func (k sizes) load(s *sizer, past turnlog.Past) pastLoad {
	key := keyOf(s, past.TurnID, true)
	known, ok := k[key]
	if !ok {
		known = s.load(past)
		k[key] = known
	}
	return known
}
