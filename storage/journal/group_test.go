package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/storagetest"
)

// A batch is writes of several turns that a test sends in one transaction.
type batch struct {
	*env
	turns   []*storagetest.Dispatch
	results []chan error
	release func()
}

// batchOf lets n turns write a step each over store, and returns once all of them wait.
func batchOf(h *env, store *journal.Store, n int) *batch {
	h.T.Helper()
	b := &batch{env: h}
	for i := range n {
		h.Submit("desk", fmt.Sprint(i), "x") // a lane for each conversation
	}
	b.turns = h.Dispatch("worker-1")
	for _, d := range b.turns {
		d.Writer = store.Writer(d.Record, d.Grant)
	}
	b.write(store, func(int) turnlog.Entry {
		return turnlog.Entry{Round: storagetest.Round(1), Events: storagetest.Events(turnkeeper.EventTurnStart,
			turnkeeper.EventRoundStart)}
	})
	return b
}

// write lets each turn write an entry, and returns once all of them wait.
func (b *batch) write(store *journal.Store, entry func(i int) turnlog.Entry) {
	b.T.Helper()
	b.results = nil
	waiting, release := store.HoldGroup()
	b.release = release
	for i, d := range b.turns {
		result := make(chan error, 1)
		b.results = append(b.results, result)
		go func() { result <- d.Append(b.T.Context(), entry(i), turnlog.Consequence{}) }()
		ctx, cancel := context.WithTimeout(b.T.Context(), storagetest.Patience)
		defer cancel()
		for waiting() <= i {
			if err := pause.For(ctx, time.Millisecond); err != nil {
				b.T.Fatalf("%d of %d writes wait", waiting(), i+1)
			}
		}
	}
}

// awaitWaiting returns once n writes wait for their batch.
func awaitWaiting(t *testing.T, waiting func() int, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storagetest.Patience)
	defer cancel()
	for waiting() < n {
		if err := pause.For(ctx, time.Millisecond); err != nil {
			t.Fatalf("%d of %d writes wait", waiting(), n)
		}
	}
}

// result returns the error of a write. It fails the test if the write does not end.
func (b *batch) result(i int) error {
	b.T.Helper()
	select {
	case err := <-b.results[i]:
		return err
	case <-time.After(storagetest.Patience):
		b.T.Fatalf("the write of turn %d does not end", i)
		return nil
	}
}

// entries returns the numbers of writes of the turns, in the order of their ids.
func (b *batch) entries() string {
	b.T.Helper()
	return storagetest.One[string](b,
		`select string_agg((select count(*) from turnkeeper.journal j where j.turn_id = t.id) || '/' || (select count(*) from turnkeeper.rounds r where r.turn_id = t.id)
		|| '/' || (select count(*) from turnkeeper.turn_events e where e.turn_id = t.id), ' ' order by t.id) from turnkeeper.turns t`)
}

func TestWritesOfManyTurnsAreOneTransaction(t *testing.T) {
	h := newEnv(t)
	b := batchOf(h, h.Journals, 5)
	b.release()
	for i := range b.turns {
		if err := b.result(i); err != nil {
			t.Error(err)
		}
	}
	if n := storagetest.One[int](h, "select count(distinct xmin::text) from turnkeeper.journal"); n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
	if got := b.entries(); got != "1/1/2 1/1/2 1/1/2 1/1/2 1/1/2" {
		t.Errorf("entries/rounds/events are %s", got)
	}
	b.turns[0].Finish(t, "done") // a write without others is sent at once
}

// One turn of the batch has lost its grant, and the row of another is locked by someone else. The first
// fails and writes nothing; the second waits; the others do not.
func TestATurnOfABatchFailsOrWaitsAlone(t *testing.T) {
	h := newEnv(t)
	b := batchOf(h, h.Journals, 5)
	h.Exec("update turnkeeper.turns set grant_id = gen_random_uuid() where id = $1", b.turns[1].Grant.TurnID)
	hold, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(t.Context(), "select from turnkeeper.turns where id = $1 for update",
		b.turns[3].Grant.TurnID); err != nil {
		t.Fatal(err)
	}
	b.release()
	for i, want := range []error{nil, turnkeeper.ErrFenced, nil, nil, nil} {
		if i == 3 {
			continue
		}
		if err := b.result(i); !errors.Is(err, want) {
			t.Errorf("turn %d: %v, want %v", i, err, want)
		}
	}
	if got := b.entries(); got != "1/1/2 0/0/0 1/1/2 0/0/0 1/1/2" {
		t.Errorf("while a row is locked, entries/rounds/events are %s", got)
	}
	b.turns[0].Finish(t, "done") // others go on meanwhile
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.result(3); err != nil {
		t.Error(err)
	}
	if got := storagetest.One[int](h, "select count(*) from turnkeeper.rounds"); got != 4 {
		t.Errorf("%d rounds, want 4", got)
	}
}

// A worker that has lost a turn and one that has it now write in one batch, at the same position of its journal. Each
// starts a call.
func TestTwoWritersOfATurnInOneBatch(t *testing.T) {
	h := newEnv(t)
	for i, staleFirst := range []bool{true, false} {
		stale := h.TurnOf([]string{"clerk", "desk"}[i], "worker-1")
		stale.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce)})
		holder := h.Again(stale, "worker-1")
		waiting, release := h.HoldGroup()
		errs := map[*storagetest.Dispatch]chan error{stale: make(chan error, 1), holder: make(chan error, 1)}
		order := []*storagetest.Dispatch{stale, holder}
		if !staleFirst {
			slices.Reverse(order)
		}
		for n, d := range order {
			go func() {
				errs[d] <- d.Append(t.Context(), turnlog.Entry{
					Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1,
						int(d.Grant.Token-stale.Grant.Token)+1), fmt.Sprint(d.Grant.TurnID, " ", d.Grant.Token), 1,
						turnkeeper.EffectOnce)},
				}, turnlog.Consequence{})
			}()
			awaitWaiting(t, waiting, n+1)
		}
		release()
		if err := <-errs[stale]; !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("stale first: %t; the stale write: %v", staleFirst, err)
		}
		if err := <-errs[holder]; err != nil {
			t.Errorf("stale first: %t; the holder's write: %v", staleFirst, err)
		}
		if tokens := storagetest.One[[]int64](h,
			"select array_agg(token) from turnkeeper.call_starts where turn_id = $1",
			stale.Grant.TurnID); !slices.Equal(tokens, []int64{holder.Grant.Token}) {
			t.Errorf("stale first: %t; the starts have tokens %d", staleFirst, tokens)
		}
	}
}

// A fenced write of a batch has more statements than its row. None of them is done.
func TestAFencedWriteWithOutputsInABatch(t *testing.T) {
	h := newEnv(t)
	h.Submit("desk", "one", "x")
	h.Submit("desk", "other", "x")
	all := h.Dispatch("worker-1")
	for _, d := range all {
		d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectNone)})
	}
	waiting, release := h.HoldGroup()
	b := &batch{env: h, turns: all}
	for i, d := range all {
		result := make(chan error, 1)
		b.results = append(b.results, result)
		r := storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallSucceeded, "read")
		r.Output = &turnkeeper.Output{ID: turnkeeper.OutputID(fmt.Sprint("output ", i)), Text: "text"}
		go func() {
			result <- d.Append(t.Context(), turnlog.Entry{Results: []turnlog.CallResult{r}}, turnlog.Consequence{})
		}()
		awaitWaiting(t, waiting, i+1)
	}
	h.Exec("update turnkeeper.turns set token = token + 1 where id = $1", all[0].Grant.TurnID)
	release()
	if err := b.result(0); !errors.Is(err, turnkeeper.ErrFenced) {
		t.Errorf("the fenced write: %v", err)
	}
	if err := b.result(1); err != nil {
		t.Error(err)
	}
	if ids := storagetest.One[string](h, "select string_agg(id, ', ') from turnkeeper.outputs"); ids != "output 1" {
		t.Errorf("the outputs %s are stored", ids)
	}
}

// Turns end in one batch. One of them has lost its grant, and the row of another is locked by someone else.
func TestEndsOfABatch(t *testing.T) {
	h := newEnv(t)
	b := &batch{env: h}
	for i := range 5 {
		h.Submit("desk", fmt.Sprint("end ", i), "x")
	}
	b.turns = h.Dispatch("worker-1")
	waiting, release := h.HoldGroup()
	replies := make([]chan error, len(b.turns))
	for i, d := range b.turns {
		replies[i] = make(chan error, 1)
		go func() {
			replies[i] <- d.Append(t.Context(), turnlog.Entry{Outcome: storagetest.Succeeded(fmt.Sprint("re: ", i))},
				storagetest.Answered)
		}()
	}
	b.results = replies
	awaitWaiting(t, waiting, len(b.turns))
	h.Exec("update turnkeeper.turns set worker_id = 'worker-2' where id = $1", b.turns[1].Grant.TurnID)
	hold, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(t.Context(), "select from turnkeeper.turns where id = $1 for update",
		b.turns[3].Grant.TurnID); err != nil {
		t.Fatal(err)
	}
	release()
	for i, want := range []error{nil, turnkeeper.ErrFenced, nil, nil, nil} {
		if i == 3 {
			continue
		}
		if err := b.result(i); !errors.Is(err, want) {
			t.Errorf("turn %d: %v, want %v", i, err, want)
		}
	}
	if n := storagetest.One[int](h, "select count(distinct xmin::text) from turnkeeper.replies"); n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.result(3); err != nil {
		t.Error(err)
	}
	got := storagetest.One[string](h,
		`select string_agg(concat_ws(' ', t.state, m.state, r.body, l.turn_id is not null, g.outcome, j.id is not null), ', ' order by t.id)
		from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id left join turnkeeper.replies r on r.turn_id = t.id
		left join turnkeeper.leases l on l.turn_id = t.id join turnkeeper.lease_log g on g.turn_id = t.id left join turnkeeper.river_job j on j.id = t.job_id`)
	want := "succeeded succeeded re: 0 f finished f, running running t t, succeeded succeeded re: 2 f finished f, " +
		"succeeded succeeded re: 3 f finished f, succeeded succeeded re: 4 f finished f"
	if got != want {
		t.Errorf("the turns are\n%s\nwant\n%s", got, want)
	}
}

// A write whose row is locked keeps other writes waiting for a moment only, even if it was sent alone.
func TestALockedRowKeepsNobodyWaiting(t *testing.T) {
	h := newEnv(t)
	locked, other := h.TurnOf("desk", "worker-1"), h.TurnOf("clerk", "worker-1")
	hold, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(t.Context(), "select from turnkeeper.turns where id = $1 for update",
		locked.Grant.TurnID); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		result <- locked.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{})
	}()
	h.AwaitLockWaits(1)
	other.Finish(t, "done")
	if len(result) != 0 {
		t.Error("the write of the locked row ended first")
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestLostAnswerOfABatch(t *testing.T) {
	for name, what := range cuts {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			p, url := storagetest.NewProxy(t, h.URL)
			b := batchOf(h, storagetest.Open(t, url).Journals, 4)
			happened := p.CutNext(what, storagetest.Sent.Executes)
			b.release()
			for i := range b.turns {
				if err := b.result(i); err != nil {
					t.Error(err)
				}
			}
			if !done(happened) {
				t.Fatal("nothing was cut")
			}
			if got := b.entries(); got != "1/1/2 1/1/2 1/1/2 1/1/2" {
				t.Errorf("entries/rounds/events are %s", got)
			}
		})
	}
}

// A write whose context ends while it waits for its batch is not sent.
func TestAWriteThatIsGivenUp(t *testing.T) {
	h := newEnv(t)
	b := batchOf(h, h.Journals, 2)
	h.Submit("clerk", "", "x")
	d := h.Dispatch("worker-1")[0]
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if err := d.Append(ctx, turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{}); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
	b.release()
	for i := range b.turns {
		if err := b.result(i); err != nil {
			t.Error(err)
		}
	}
	if got := b.entries(); got != "1/1/2 1/1/2 0/0/0" {
		t.Errorf("entries/rounds/events are %s", got)
	}
}

// A write that is cancelled when it becomes the leader of its group makes the next one the leader.
func TestAWriteThatIsGivenUpAsItIsSent(t *testing.T) {
	h := newEnv(t)
	d := h.TurnOf("clerk", "worker-1")
	waiting, giveUp := h.Appoint()
	b := &batch{env: h, results: []chan error{make(chan error, 1)}}
	go func() {
		b.results[0] <- d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{})
	}()
	awaitWaiting(t, waiting, 1)
	giveUp()
	if err := b.result(0); err != nil {
		t.Error(err)
	}
	d.Finish(t, "done") // nothing is in flight
}

func TestAStartWithoutItsApprovalFailsAlone(t *testing.T) {
	h := newEnv(t)
	for i := range 3 {
		h.Submit("desk", fmt.Sprint(i), "x")
	}
	b := &batch{env: h, turns: h.Dispatch("worker-1")}
	key := storagetest.Key(1, 1)
	for i, d := range b.turns {
		e := turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectKeyed),
			Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)}
		if i == 1 {
			e.Gates = []turnkeeper.CallKey{key}
		}
		d.Write(t, e)
	}
	b.write(h.Journals, func(i int) turnlog.Entry {
		return turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(key, fmt.Sprint("n", i), 1,
			turnkeeper.EffectKeyed)}}
	})
	b.release()
	for i := range b.turns {
		want := error(nil)
		if i == 1 {
			want = asks.ErrNotApproved
		}
		if err := b.result(i); !errors.Is(err, want) {
			t.Errorf("turn %d: error %v, want %v", i, err, want)
		}
	}
	if got := storagetest.One[string](h,
		"select string_agg(state, ' ' order by turn_id) from turnkeeper.calls"); got != "started planned started" {
		t.Errorf("calls are %s", got)
	}
	if got := storagetest.One[int](h, "select count(*) from turnkeeper.journal where n = 2"); got != 2 {
		t.Errorf("%d turns have a second write", got)
	}
}
