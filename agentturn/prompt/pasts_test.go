package prompt

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// A new epoch may show a turn that the one before it did not: one that waited for a person while later turns ran.
func TestACallOfATurnThatANewEpochShowsIsFound(t *testing.T) {
	t.Parallel()
	p := readJournal(t, "window 32000 1000\nmessage Hello.\npast 3 Earlier.\ncall w1 found\nreply Fine.")
	id := p.history[0].Rounds[0].Calls[0].WireID
	p.pasts.newest = written{epoch: &epoch{}} // of an epoch that does not show it
	if p.HasCallID(id) {
		t.Fatal("the epoch before shows the call")
	}
	if _, err := p.begin(p.model, p.at, EpochHistory, nil); err != nil {
		t.Fatal(err)
	}
	if !p.HasCallID(id) || p.HasCallID("other") {
		t.Errorf("the call %q is not found once the new epoch has begun", id)
	}
}

// TestWhatIsKeptOfAChain asks for what is written of a chain for epochs that show the same turns, more, and others.
func TestWhatIsKeptOfAChain(t *testing.T) {
	t.Parallel()
	turns := func(ids ...turnkeeper.TurnID) (shown []turnlog.Past) {
		for _, id := range ids {
			shown = append(shown, turnlog.Past{TurnID: id})
		}
		return shown
	}
	began := func(change func(*epoch)) *epoch {
		e := &epoch{id: turnkeeper.EpochID{Turn: 3, Round: 1}, model: modelKey{"p", "m"}, version: recipeVersion,
			Epoch: turnkeeper.Epoch{System: "s", Past: []turnkeeper.TurnID{1, 2}}}
		change(e)
		return e
	}
	same := func(*epoch) {}
	of := func(tokens int) written {
		return written{epoch: began(same), turns: []turnkeeper.TurnID{1, 2, 3}, tokens: tokens}
	}
	key := historyKey{"conversation", ""}
	var memory Memory
	memory.keep(key, of(1))
	memory.keep(key, of(2))
	for name, c := range map[string]struct {
		key   historyKey
		epoch *epoch
		shown []turnlog.Past
		want  int
	}{
		"the same turns":         {key, began(same), turns(1, 2, 3), 2},
		"more turns":             {key, began(same), turns(1, 2, 3, 5, 8), 2},
		"fewer turns":            {key, began(same), turns(1, 2), 0},
		"another turn":           {key, began(same), turns(1, 2, 4, 5), 0},
		"a turn between":         {key, began(same), turns(1, 2, 2, 3), 0},
		"a turn is purged":       {key, began(same), turns(2, 3, 5), 0},
		"another chain":          {historyKey{"conversation", "nightly"}, began(same), turns(1, 2, 3), 0},
		"another conversation":   {historyKey{"other", ""}, began(same), turns(1, 2, 3), 0},
		"a later epoch":          {key, began(func(e *epoch) { e.id.Round = 2 }), turns(1, 2, 3), 0},
		"another model":          {key, began(func(e *epoch) { e.model.model = "n" }), turns(1, 2, 3), 0},
		"another release's":      {key, began(func(e *epoch) { e.version-- }), turns(1, 2, 3), 0},
		"its first was the last": {key, began(func(e *epoch) { e.final = true }), turns(1, 2, 3), 0},
		"the epoch that another worker began there": {key, began(func(e *epoch) { e.LeanPast = 1 }), turns(1, 2, 3), 0},
	} {
		if got := memory.writtenOf(c.key, c.epoch, c.shown); got.tokens != c.want {
			t.Errorf("%s: got %d, want %d", name, got.tokens, c.want)
		}
	}
}
