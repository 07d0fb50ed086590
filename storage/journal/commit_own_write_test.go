package journal_test

import (
	"errors"
	"sync"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// planned returns an entry with the plan and the start of one call of effect once.
func planned(arguments, nonce string) turnlog.Entry {
	r := storagetest.Round(1, turnkeeper.EffectOnce)
	r.Calls[0].Arguments = arguments
	return turnlog.Entry{Round: r, Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), nonce, 1,
		turnkeeper.EffectOnce)}}
}

// between cuts the writer's next write, and calls others before the writer can read back.
func between(p *storagetest.Proxy, what storagetest.Cut, others func()) {
	var once sync.Once
	cut := false
	p.Plan(func(sent storagetest.Sent) storagetest.Cut {
		decision := storagetest.Pass
		switch {
		case sent.Has("name: AppendMany") && !cut:
			cut = true
			decision = what
		case sent.Has("name: ReadBack"):
			once.Do(others)
		}
		return decision
	})
}

// The journal has one entry more than the writer expects, as if its own write had succeeded. The
// entry is another writer's.
func TestAnothersWriteIsNotTakenForOnesOwn(t *testing.T) {
	for name, c := range map[string]struct {
		worker turnkeeper.WorkerID
		want   error
	}{
		"of the same worker": {"worker-1", turnkeeper.ErrJournalMoved},
		"of another worker":  {"worker-2", turnkeeper.ErrFenced},
	} {
		t.Run(name, func(t *testing.T) {
			h, p, d := overProxy(t)
			between(p, storagetest.Lose, func() {
				other := d.Grant
				other.WorkerID = c.worker
				h.Exec("update turnkeeper.turns set worker_id = $1", c.worker) // as if the grant had not been bound
				if err := h.Writer(d.Record, other).Append(t.Context(), planned(`{"sum":2}`, "other"),
					turnlog.Consequence{}); err != nil {
					t.Error(err)
				}
			})
			if err := d.Append(t.Context(), planned(`{"sum":1}`, "own"),
				turnlog.Consequence{}); !errors.Is(err, c.want) {
				t.Errorf("the lost write: %v, want %v", err, c.want)
			}
			call := h.Call(d.Grant.TurnID, storagetest.Key(1, 1))
			if call.Arguments != `{"sum":2}` || call.Nonce != "other" || call.Starts != 1 {
				t.Errorf("the call is %+v", call)
			}
		})
	}
}

// After a lost answer, a writer continues from its own write only while it has the grant. It finds its own end whatever
// was written after it.
func TestLostAnswerAndATakeOver(t *testing.T) {
	testrun.Guard(t)
	handedBack := turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued}}
	for name, c := range map[string]struct {
		entry  turnlog.Entry
		others func(*env, *storagetest.Dispatch)
		want   error
	}{
		"a start, and the turn is queued": {planned("{}", "n"), func(h *env, d *storagetest.Dispatch) {
			h.Lose(d)
		}, turnkeeper.ErrFenced},
		"a start, and the turn is another's": {
			planned("{}", "n"), func(h *env, d *storagetest.Dispatch) { h.Again(d, "worker-2") }, turnkeeper.ErrFenced,
		},
		"a start, and another has written": {planned("{}", "n"), func(h *env, d *storagetest.Dispatch) {
			h.Again(d, "worker-2").Write(h.T.(*testing.T), turnlog.Entry{Verdicts: []turnlog.CallResult{
				{Key: storagetest.Key(1, 1), State: turnkeeper.CallUnknown, Shown: "?"},
			}})
		}, turnkeeper.ErrFenced},
		"an end": {turnlog.Entry{Outcome: storagetest.Succeeded("done")}, func(*env, *storagetest.Dispatch) {}, nil},
		"an end, and the turn is another's": {
			handedBack, func(h *env, _ *storagetest.Dispatch) { h.Dispatch("worker-2") }, nil,
		},
		"an end, and another has written": {handedBack, func(h *env, _ *storagetest.Dispatch) {
			h.Dispatch("worker-2")[0].Write(h.T.(*testing.T), turnlog.Entry{Round: storagetest.Round(1)})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, p, d := overProxy(t)
			h.T = t
			between(p, storagetest.Unanswer, func() { c.others(h, d) })
			if err := d.Append(t.Context(), c.entry, turnlog.Consequence{Log: "handed_back",
				Message: turnkeeper.MessageSucceeded}); !errors.Is(err, c.want) {
				t.Errorf("the write whose answer was lost: %v, want %v", err, c.want)
			}
			if n := storagetest.One[int](h, "select count(*) from turnkeeper.call_starts"); n != len(c.entry.Starts) {
				t.Errorf("%d starts are on record", n)
			}
		})
	}
}

// A second worker gets the job while the first does not know whether its write was done.
func TestLostAnswerAndADoubleDelivery(t *testing.T) {
	testrun.Guard(t)
	for name, what := range cuts {
		t.Run(name, func(t *testing.T) {
			h, p, d := overProxy(t)
			between(p, what, func() {
				h.FetchJob(d.Grant.JobID, "worker-2")
				if _, err := h.BindGrant(t.Context(), d.Grant.TurnID, d.Grant.GrantID, "worker-2"); !errors.Is(err,
					turnkeeper.ErrFenced) {
					t.Errorf("the second worker: %v", err)
				}
				other := d.Grant
				other.WorkerID = "worker-2"
				if err := h.Writer(d.Record, other).Append(t.Context(), planned(`{"sum":2}`, "other"),
					turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("the second worker's write: %v", err)
				}
			})
			d.Write(t, planned(`{"sum":1}`, "own"))
			call := h.Call(d.Grant.TurnID, storagetest.Key(1, 1))
			if call.Arguments != `{"sum":1}` || call.Nonce != "own" || call.Starts != 1 {
				t.Errorf("the call is %+v", call)
			}
			d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "own",
				turnkeeper.CallSucceeded, "ok")}})
			d.Finish(t, "done")
		})
	}
}

func TestLostAnswerOfABinding(t *testing.T) {
	testrun.Guard(t)
	for name, what := range cuts {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			p, url := storagetest.NewProxy(t, h.URL)
			far := storagetest.Open(t, url)
			h.Submit("clerk", "", "x")
			d := h.Dispatch("")[0]
			happened := p.CutNext(what, func(sent storagetest.Sent) bool {
				return sent.Has("name: BindGrant") && sent.Executes()
			})
			if _, err := far.BindGrant(t.Context(), d.Grant.TurnID, d.Grant.GrantID, "worker-1"); err != nil {
				t.Fatal(err)
			}
			if !done(happened) {
				t.Error("nothing was cut")
			}
			if worker := storagetest.One[string](h, "select worker_id from turnkeeper.turns"); worker != "worker-1" {
				t.Errorf("the grant is bound to %q", worker)
			}
		})
	}
}
