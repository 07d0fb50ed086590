package journal

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// A history that ends before the one that is kept does not replace it, so that rebuilding an old request costs the next
// turn nothing.
func TestTheNewestHistoryIsKept(t *testing.T) {
	t.Parallel()
	of := func(ids ...turnkeeper.TurnID) (history conversation) {
		for _, id := range ids {
			history.add(turnlog.Past{TurnID: id}, 10)
		}
		return history
	}
	key := turnkeeper.ConversationKey{Agent: "clerk", Name: "a"}
	var kept pasts
	for _, c := range []struct {
		put  conversation
		want turnkeeper.TurnID
	}{{of(1, 2, 3), 3}, {of(1, 2), 3}, {of(), 3}, {of(2, 3), 3}, {of(3, 4), 4}} {
		kept.keep(key, c.put)
		got := kept.all.Get(key)
		if n := len(got.turns); n == 0 || got.turns[n-1].TurnID != c.want {
			t.Errorf("after %d turns were put, %+v is kept, want turn %d last", len(c.put.turns), got.turns, c.want)
		}
	}
	if got := kept.all.Get(key); len(got.turns) != 2 || got.bytes != 20 || got.turns[0].TurnID != 3 {
		t.Errorf("kept %+v", got)
	}
	large := of(5, 6, 7)
	large.sizes, large.bytes = []int{maxPasts / 8, maxPasts / 8, maxPasts / 8}, 3*maxPasts/8
	kept.keep(key, large)
	if got := kept.all.Get(key); len(got.turns) != 2 || got.turns[0].TurnID != 6 || got.bytes != maxPasts/4 {
		t.Errorf("of turns that take three eighths, %d are kept, which take %d bytes", len(got.turns), got.bytes)
	}
	if len(large.turns) != 3 {
		t.Errorf("the history that was kept has %d turns", len(large.turns))
	}
	if got := kept.all.Get(turnkeeper.ConversationKey{Agent: "clerk", Name: "b"}); len(got.turns) != 0 {
		t.Errorf("another conversation has %+v", got)
	}
}
