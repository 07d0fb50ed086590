package storage_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// facts are what a turn's row must say for a write to go through: each is changed alone, so that no
// other condition refuses in its place.
var facts = []struct {
	name, change string
	want         error
}{
	{"a newer token", "token = token + 1", turnkeeper.ErrFenced},
	{"an older token", "token = token - 1", turnkeeper.ErrFenced},
	{"another grant", "grant_id = gen_random_uuid()", turnkeeper.ErrFenced},
	{"a queued turn", "state = 'queued'", turnkeeper.ErrFenced},
	{"a waiting turn", "state = 'waiting'", turnkeeper.ErrFenced},
	{"another worker", "worker_id = 'worker-2'", turnkeeper.ErrFenced},
	{"no worker", "worker_id = null", turnkeeper.ErrFenced},
	{"a write more", "entries = entries + 1", turnkeeper.ErrJournalMoved},
	{"a write less", "entries = entries - 1", turnkeeper.ErrJournalMoved},
}

// TestEachConditionOfTheFence writes while one fact is not what the writer holds.
func TestEachConditionOfTheFence(t *testing.T) {
	h := newHouse(t)
	for _, f := range facts {
		t.Run(f.name, func(t *testing.T) {
			h.t = t
			h.enqueue("desk", f.name, "x")
			d := h.dispatch("worker-1")[0]
			d.append(t, turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce)})
			h.exec("update turnkeeper.turns set "+f.change+" where id = $1", d.grant.TurnID)
			before := h.rows()
			for name, e := range map[string]turnkeeper.Entry{
				"a step":  {Round: round(2)},
				"a start": {Starts: []turnkeeper.CallStart{start(key(1, 1), "n", 1, turnkeeper.EffectOnce)}},
				"the end": {Outcome: succeeded("done")},
			} {
				if err := d.Append(t.Context(), e, answered); !errors.Is(err, f.want) {
					t.Errorf("%s: %v, want %v", name, err, f.want)
				}
			}
			for _, row := range changed(before, h.rows()) {
				t.Errorf("a refused write changed %s", row)
			}
		})
	}
	h.t = t
}

// TestBindGrantChecks binds a grant while one fact is not what the job says.
func TestBindGrantChecks(t *testing.T) {
	h := newHouse(t)
	for name, change := range map[string]string{
		"another grant": "grant_id = gen_random_uuid()", "a queued turn": "state = 'queued'", "a waiting turn": "state = 'waiting'",
	} {
		t.Run(name, func(t *testing.T) {
			h.t = t
			h.enqueue("desk", name, "x")
			d := h.dispatch("")[0]
			h.exec("update turnkeeper.turns set "+change+" where id = $1", d.grant.TurnID)
			if _, err := h.BindGrant(t.Context(), d.grant.TurnID, d.grant.GrantID, "worker-1"); !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("the binding: %v, want ErrFenced", err)
			}
			if n := one[int](h, "select count(worker_id) from turnkeeper.turns where id = $1", d.grant.TurnID); n != 0 {
				t.Error("a worker is bound")
			}
		})
	}
	h.t = t
}

// TestTheSecondBindingChangesNothing lets a second worker ask for a grant that is bound.
func TestTheSecondBindingChangesNothing(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	before := h.rows()
	if _, err := h.BindGrant(t.Context(), d.grant.TurnID, d.grant.GrantID, "worker-2"); !errors.Is(err, turnkeeper.ErrFenced) {
		t.Errorf("the second worker: %v, want ErrFenced", err)
	}
	if first, err := h.BindGrant(t.Context(), d.grant.TurnID, d.grant.GrantID, "worker-1"); err != nil || first {
		t.Errorf("the first worker again: first %t, %v", first, err)
	}
	for _, row := range changed(before, h.rows()) {
		t.Errorf("changed %s", row)
	}
	d.finish(t, "done")
}

// TestTurnsThatShareAGrant makes two turns alike in all but their ids: what is done to one is not done to the other.
func TestTurnsThatShareAGrant(t *testing.T) {
	h := newHouse(t)
	p, url := storagetest.NewProxy(t, h.url)
	far := storagetest.Open(t, url)
	h.enqueue("desk", "one", "x")
	h.enqueue("desk", "other", "x")
	all := h.dispatch("")
	for _, d := range all {
		h.exec("update turnkeeper.turns set token = $2, grant_id = $3 where id = $1", d.grant.TurnID, all[0].grant.Token, all[0].grant.GrantID)
	}
	d := all[1]
	d.grant.Token, d.grant.GrantID, d.grant.WorkerID = all[0].grant.Token, all[0].grant.GrantID, "worker-1"
	if _, err := h.BindGrant(t.Context(), d.grant.TurnID, d.grant.GrantID, "worker-1"); err != nil {
		t.Fatal(err)
	}
	if n := one[int](h, "select count(worker_id) from turnkeeper.turns"); n != 1 {
		t.Errorf("%d turns are bound", n)
	}
	h.exec("update turnkeeper.turns set worker_id = 'worker-1'")
	happened := p.CutNext(storagetest.Unanswer, storagetest.Sent.Executes)
	if err := far.Writer(d.record, d.grant).Append(t.Context(), turnkeeper.Entry{Round: round(1)}, storage.Ending{}); err != nil {
		t.Error(err)
	}
	if !done(happened) {
		t.Error("nothing was cut")
	}
	if n := one[int](h, "select entries from turnkeeper.turns where id = $1", all[0].grant.TurnID); n != 0 {
		t.Errorf("the other turn has %d entries", n)
	}
}

// TestLateAttachmentsNeedTheStart delivers a late result with an attached output. The output is
// stored only if turn, round, call and nonce match a start in the journal.
func TestLateAttachmentsNeedTheStart(t *testing.T) {
	h := newHouse(t)
	calls := func(conversation, nonce string) *dispatch {
		h.enqueue("desk", conversation, "x")
		d := h.dispatch("worker-1")[0]
		for n := 1; n <= 2; n++ {
			d.append(t, turnkeeper.Entry{Round: round(n, turnkeeper.EffectOnce, turnkeeper.EffectOnce)})
		}
		d.append(t, turnkeeper.Entry{Starts: []turnkeeper.CallStart{start(key(1, 1), nonce, 1, turnkeeper.EffectOnce)}})
		return d
	}
	d, other := calls("one", "own"), calls("other", "another's")
	attach := func(w *dispatch, k turnkeeper.CallKey, nonce string) (kept int) {
		t.Helper()
		r := result(k, nonce, turnkeeper.CallSucceeded, "late")
		r.Attached = []turnkeeper.Output{{ID: turnkeeper.OutputID(uuid.NewString()), Text: "text", MediaType: "text/plain"}}
		if err := w.Late(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return one[int](h, "select count(*) from turnkeeper.outputs where id = $1", r.Attached[0].ID)
	}
	for name, n := range map[string]int{
		"of another turn":    attach(other, key(1, 1), "own"),
		"of another round":   attach(d, key(2, 1), "own"),
		"of another call":    attach(d, key(1, 2), "own"),
		"under another name": attach(d, key(1, 1), "another's"),
	} {
		if n != 0 {
			t.Errorf("the output is kept with a start %s", name)
		}
	}
	if n := attach(d, key(1, 1), "own"); n != 1 {
		t.Errorf("%d outputs are kept with the start itself", n)
	}
}
