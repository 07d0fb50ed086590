package journal_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// facts lists the conditions on a turn's row for a write. Each case breaks only one, so that no
// other condition refuses the write.
var facts = []struct {
	name, change string
	want         error
}{
	{"a newer token", "update turnkeeper.turns set token = token + 1 where id = $1", turnkeeper.ErrFenced},
	{"an older token", "update turnkeeper.turns set token = token - 1 where id = $1", turnkeeper.ErrFenced},
	{"another grant", "update turnkeeper.turns set grant_id = gen_random_uuid() where id = $1", turnkeeper.ErrFenced},
	{"a queued turn", "update turnkeeper.turns set state = 'queued' where id = $1", turnkeeper.ErrFenced},
	{"a waiting turn", "update turnkeeper.turns set state = 'waiting' where id = $1", turnkeeper.ErrFenced},
	{"another worker", "update turnkeeper.turns set worker_id = 'worker-2' where id = $1", turnkeeper.ErrFenced},
	{"no worker", "update turnkeeper.turns set worker_id = null where id = $1", turnkeeper.ErrFenced},
	{"another turn", "update turnkeeper.turns set id = id + 1000000 where id = $1", turnkeeper.ErrFenced},
	{"a write more", "select turnkeeper.add_events($1, '{}', '{}', '{}', '{}')", turnkeeper.ErrJournalMoved},
	{"a write less", "delete from turnkeeper.journal where turn_id = $1", turnkeeper.ErrJournalMoved},
}

// TestEachConditionOfTheFence writes while one condition does not hold.
func TestEachConditionOfTheFence(t *testing.T) {
	h := newEnv(t)
	for _, f := range facts {
		t.Run(f.name, func(t *testing.T) {
			h.T = t
			h.Submit("desk", f.name, "x")
			d := h.Dispatch("worker-1")[0]
			d.Write(t, turnlog.Entry{
				Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce),
				Gates: []turnkeeper.CallKey{storagetest.Key(1, 2)},
			})
			h.Exec(f.change, d.Grant.TurnID)
			before := h.Rows()
			for name, e := range map[string]turnlog.Entry{
				"a step": {Round: storagetest.Round(2)},
				"a start": {Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1),
					"n", 1, turnkeeper.EffectOnce)}},
				"a start without its approval": {Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 2),
					"n", 1, turnkeeper.EffectOnce)}},
				"the end": {Outcome: storagetest.Succeeded("done")},
			} {
				if err := d.Append(t.Context(), e, storagetest.Answered); !errors.Is(err, f.want) {
					t.Errorf("%s: %v, want %v", name, err, f.want)
				}
			}
			for _, row := range storagetest.Changed(before, h.Rows()) {
				t.Errorf("a refused write changed %s", row)
			}
		})
	}
	h.T = t
}

// TestEachConditionOfTheFenceInABatch writes in a batch with another turn while one condition does not hold.
func TestEachConditionOfTheFenceInABatch(t *testing.T) {
	h := newEnv(t)
	for _, f := range facts {
		t.Run(f.name, func(t *testing.T) {
			h.T = t
			h.Submit("desk", f.name, "x")
			h.Submit("desk", f.name+" other", "x")
			all := h.Dispatch("worker-1")
			for _, d := range all {
				d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
			}
			waiting, release := h.HoldGroup()
			b := &batch{env: h}
			for i, d := range all {
				result := make(chan error, 1)
				b.results = append(b.results, result)
				go func() {
					result <- d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(2)}, turnlog.Consequence{})
				}()
				awaitWaiting(t, waiting, i+1)
			}
			h.Exec(f.change, all[0].Grant.TurnID)
			release()
			if err := b.result(0); !errors.Is(err, f.want) {
				t.Errorf("%v, want %v", err, f.want)
			}
			if err := b.result(1); err != nil {
				t.Errorf("the other turn: %v", err)
			}
			if n := storagetest.One[int](h, "select count(*) from turnkeeper.rounds where turn_id = $1 and round = 2",
				all[0].Grant.TurnID); n != 0 {
				t.Error("the refused round is on record")
			}
		})
	}
	h.T = t
}

// TestTheFenceSeesTheWriteThatItWaitedFor writes while another write of the turn is in flight.
func TestTheFenceSeesTheWriteThatItWaitedFor(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	first, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Exec(t.Context(), `select turnkeeper.add_events(id, '{}', '{}', '{}', '{}')
		from (select id from turnkeeper.turns for no key update) t`); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		second <- d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{})
	}()
	h.AwaitLockWaits(1)
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, turnkeeper.ErrJournalMoved) || !strings.Contains(err.Error(),
		"it has 1 writes") {
		t.Errorf("the second write: %v", err)
	}
}

// TestBindGrantChecks binds a grant while the turn differs from its job in one condition.
func TestBindGrantChecks(t *testing.T) {
	h := newEnv(t)
	for name, change := range map[string]string{
		"another grant": "grant_id = gen_random_uuid()", "a queued turn": "state = 'queued'",
		"a waiting turn": "state = 'waiting'",
	} {
		t.Run(name, func(t *testing.T) {
			h.T = t
			h.Submit("desk", name, "x")
			d := h.Dispatch("")[0]
			h.Exec("update turnkeeper.turns set "+change+" where id = $1", d.Grant.TurnID)
			if _, err := h.BindGrant(t.Context(), d.Grant.TurnID, d.Grant.GrantID, "worker-1"); !errors.Is(err,
				turnkeeper.ErrFenced) {
				t.Errorf("the binding: %v, want ErrFenced", err)
			}
			if n := storagetest.One[int](h, "select count(worker_id) from turnkeeper.turns where id = $1",
				d.Grant.TurnID); n != 0 {
				t.Error("a worker is bound")
			}
		})
	}
	h.T = t
}

// TestTheSecondBindingChangesNothing lets a second worker bind a grant that is bound already.
func TestTheSecondBindingChangesNothing(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	before := h.Rows()
	if _, err := h.BindGrant(t.Context(), d.Grant.TurnID, d.Grant.GrantID, "worker-2"); !errors.Is(err,
		turnkeeper.ErrFenced) {
		t.Errorf("the second worker: %v, want ErrFenced", err)
	}
	if first, err := h.BindGrant(t.Context(), d.Grant.TurnID, d.Grant.GrantID, "worker-1"); err != nil || first {
		t.Errorf("the first worker again: first %t, %v", first, err)
	}
	for _, row := range storagetest.Changed(before, h.Rows()) {
		t.Errorf("changed %s", row)
	}
	d.Finish(t, "done")
}

// TestTurnsThatShareAGrant writes to one of two turns that differ only in their ids. The other does
// not change.
func TestTurnsThatShareAGrant(t *testing.T) {
	h := newEnv(t)
	p, url := storagetest.NewProxy(t, h.URL)
	far := storagetest.Open(t, url)
	h.Submit("desk", "one", "x")
	h.Submit("desk", "other", "x")
	all := h.Dispatch("")
	for _, d := range all {
		h.Exec("update turnkeeper.turns set token = $2, grant_id = $3 where id = $1", d.Grant.TurnID,
			all[0].Grant.Token, all[0].Grant.GrantID)
	}
	d := all[1]
	d.Grant.Token, d.Grant.GrantID, d.Grant.WorkerID = all[0].Grant.Token, all[0].Grant.GrantID, "worker-1"
	if _, err := h.BindGrant(t.Context(), d.Grant.TurnID, d.Grant.GrantID, "worker-1"); err != nil {
		t.Fatal(err)
	}
	if n := storagetest.One[int](h, "select count(worker_id) from turnkeeper.turns"); n != 1 {
		t.Errorf("%d turns are bound", n)
	}
	h.Exec("update turnkeeper.turns set worker_id = 'worker-1'")
	happened := p.CutNext(storagetest.Unanswer, storagetest.Sent.Executes)
	if err := far.Writer(d.Record, d.Grant).Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1)},
		turnlog.Consequence{}); err != nil {
		t.Error(err)
	}
	if !done(happened) {
		t.Error("nothing was cut")
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.journal where turn_id = $1",
		all[0].Grant.TurnID); n != 0 {
		t.Errorf("the other turn has %d entries", n)
	}
}

// TestLateAttachmentsNeedTheStart delivers a late result with an attached output. The output is
// stored only if turn, round, call and nonce match a start in the journal.
func TestLateAttachmentsNeedTheStart(t *testing.T) {
	h := newEnv(t)
	calls := func(conversation, nonce string) *storagetest.Dispatch {
		h.Submit("desk", conversation, "x")
		d := h.Dispatch("worker-1")[0]
		for n := 1; n <= 2; n++ {
			d.Write(t, turnlog.Entry{Round: storagetest.Round(n, turnkeeper.EffectOnce, turnkeeper.EffectOnce)})
		}
		d.Write(t, turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), nonce, 1,
			turnkeeper.EffectOnce)}})
		return d
	}
	d, other := calls("one", "own"), calls("other", "another's")
	attach := func(w *storagetest.Dispatch, k turnkeeper.CallKey, nonce string) (kept int) {
		t.Helper()
		r := storagetest.Result(k, nonce, turnkeeper.CallSucceeded, "late")
		r.Attached = []turnkeeper.Output{{ID: turnkeeper.OutputID(uuid.NewString()), Text: "text",
			MediaType: "text/plain"}}
		if err := w.Late(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return storagetest.One[int](h, "select count(*) from turnkeeper.outputs where id = $1", r.Attached[0].ID)
	}
	for name, n := range map[string]int{
		"of another turn":    attach(other, storagetest.Key(1, 1), "own"),
		"of another round":   attach(d, storagetest.Key(2, 1), "own"),
		"of another call":    attach(d, storagetest.Key(1, 2), "own"),
		"under another name": attach(d, storagetest.Key(1, 1), "another's"),
	} {
		if n != 0 {
			t.Errorf("the output is kept with a start %s", name)
		}
	}
	if n := attach(d, storagetest.Key(1, 1), "own"); n != 1 {
		t.Errorf("%d outputs are kept with the start itself", n)
	}
}
