package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/commit"
	"turnkeeper/internal/turnlog"
)

// A Journal is the journal of one dispatch. It belongs to one goroutine.
type Journal struct {
	conn    *Conn
	s       *Store
	grant   turnkeeper.Grant
	writer  commit.Writer
	lastSeq int64
	paging  map[turnkeeper.CallKey]bool
}

var _ agentturn.Journal = (*Journal)(nil)

// RequestParts returns parts of requests by their hashes. It omits unknown hashes.
func (j *Journal) RequestParts(ctx context.Context, hashes ...string) (map[string]string, error) {
	return j.conn.RequestParts(ctx, hashes...)
}

// Journal returns the journal of a dispatch whose record was loaded under its grant.
// BindGrant must have bound the grant to its worker.
func (c *Conn) Journal(record *turnlog.Record, grant turnkeeper.Grant) *Journal {
	j := &Journal{
		conn: c, s: c.store, grant: grant, lastSeq: record.Turn.LastSeq, paging: map[turnkeeper.CallKey]bool{},
		writer: commit.Writer{Grant: grant, Entries: record.Entries},
	}
	for _, round := range record.Rounds {
		j.remember(&round)
	}
	return j
}

// remember records which calls are paging calls, which never count as executed.
func (j *Journal) remember(r *turnkeeper.Round) {
	if r == nil {
		return
	}
	for _, call := range r.Calls {
		if call.Paging {
			j.paging[call.Key] = true
		}
	}
}

// endTime is the timeout for writing the outcome of a dispatch, which the end of ctx does not stop.
const endTime = 10 * time.Second

// Append makes the entry durable: see agentturn.Journal.
func (j *Journal) Append(ctx context.Context, e turnlog.Entry) error {
	if e.Outcome != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
	}
	again := false
	err := j.write(ctx, commit.Write{Entries: 1, Ends: e.Outcome != nil, Attempt: func(ctx context.Context,
		id string) error {
		if again && j.s.has(BugNumbersLost) {
			j.lastSeq += eventsOf(e)
		}
		again = true
		return j.attempt(ctx, id, e)
	}})
	if err == nil {
		j.lastSeq += eventsOf(e)
	}
	return err
}

// eventsOf returns the number of events of a write.
func eventsOf(e turnlog.Entry) (n int64) {
	for _, part := range e.Sequence() {
		n += int64(len(part.Events))
	}
	return n
}

// attempt tries once to write an entry.
func (j *Journal) attempt(ctx context.Context, id string, e turnlog.Entry) error {
	if j.s.has(BugFenceApart) {
		return j.attemptApart(ctx, id, e)
	}
	if e.Outcome != nil && (j.s.has(BugReplyFirst) || j.s.has(BugReplyLast)) {
		return j.endApart(ctx, id, e)
	}
	return j.conn.ask(ctx, requestOf(e), func() error {
		return j.inRow(ctx, func(rings *[]Bell) error { return j.apply(id, e, rings) })
	})
}

func requestOf(e turnlog.Entry) string {
	if e.Outcome != nil {
		return "finish"
	}
	return "step"
}

// inRow runs f with the lock of the turn's row, as one transaction.
func (j *Journal) inRow(ctx context.Context, f func(rings *[]Bell) error) error {
	return j.s.inRow(ctx, j.grant.TurnID, f)
}

func (s *Store) inRow(ctx context.Context, turn turnkeeper.TurnID, f func(rings *[]Bell) error) error {
	if err := s.lockTurn(ctx, int64(turn), nil); err != nil {
		return err
	}
	var rings []Bell
	err := f(&rings)
	s.mu.Unlock()
	if err == nil {
		for _, bell := range rings {
			s.opts.Ring(bell)
		}
	}
	return err
}

// apply applies one entry completely or not at all. The caller has the row's lock.
func (j *Journal) apply(id string, e turnlog.Entry, rings *[]Bell) error {
	draft, err := j.fenced(id)
	if err != nil {
		return err
	}
	j.s.commit++
	if err := j.entry(draft, e, rings); err != nil {
		return err
	}
	j.s.state.setTurn(draft)
	for _, part := range e.Sequence() {
		j.s.spawn(draft.ID, part.Starts, rings)
		j.keepShared(draft, part)
		j.s.state.finish(part.Results)
	}
	j.s.state.writes = append(j.s.state.writes, writeRow{j.grant.TurnID, j.grant.GrantID, j.s.commit})
	return nil
}

// fenced returns the turn to write to, if its newest grant is bound to this writer's
// worker. The check does not depend on time.
func (j *Journal) fenced(id string) (*turnRow, error) {
	row := j.s.state.turn(j.grant.TurnID)
	if row == nil {
		return nil, turnkeeper.ErrFenced
	}
	if err := j.checkFence(row); err != nil {
		return nil, err
	}
	draft := row.draft()
	draft.writes = append(draft.writes, id)
	return draft, nil
}

func (j *Journal) checkFence(row *turnRow) error {
	if j.s.bugs.has(BugNoFence) {
		return nil
	}
	if row.Token != j.grant.Token || row.GrantID != j.grant.GrantID || row.State != turnkeeper.TurnRunning ||
		row.WorkerID != j.grant.WorkerID && !j.s.bugs.has(BugGrantUnbound) {
		return turnkeeper.ErrFenced
	}
	if row.entries() != j.writer.Entries && !j.s.bugs.has(BugLostAnswerRedone) {
		return fmt.Errorf("%w: it has %d writes, not the expected %d", turnkeeper.ErrJournalMoved, row.entries(),
			j.writer.Entries)
	}
	return nil
}

// Transact runs a transactional call: see agentturn.Journal. Functions that the tool
// passed to OnCommit are called when its transaction commits.
func (j *Journal) Transact(ctx context.Context, start turnlog.CallStart, _ time.Duration,
	run func(context.Context) turnlog.CallResult,
) (result turnlog.CallResult, err error) {
	const steps = 2 // one for the start, one for the result
	err = j.write(ctx, commit.Write{Entries: steps, Attempt: func(ctx context.Context, id string) (err error) {
		result, err = j.transact(ctx, id, start, run)
		return err
	}})
	return result, err
}

func (j *Journal) transact(ctx context.Context, id string, start turnlog.CallStart,
	run func(context.Context) turnlog.CallResult,
) (result turnlog.CallResult, err error) {
	var t *tx
	defer func() {
		j.s.mu.Lock()
		defer j.s.mu.Unlock()
		if t != nil {
			t.end()
		}
	}()
	started := turnlog.Entry{Starts: []turnlog.CallStart{start}}
	err = j.conn.ask(ctx, "transact.begin", func() error {
		j.s.mu.Lock()
		t = j.conn.begin()
		j.s.mu.Unlock()
		if err := j.s.lockTurn(ctx, int64(j.grant.TurnID), t); err != nil {
			return err
		}
		defer j.s.mu.Unlock()
		draft, err := j.fenced(id)
		if err != nil {
			return err
		}
		return j.entry(draft, started, nil) // visible to this transaction only
	})
	if err != nil {
		return result, err
	}
	effects := &effects{}
	result = run(context.WithValue(ctx, effectsKey{}, effects))
	err = j.conn.ask(ctx, "transact.commit", func() error {
		j.s.mu.Lock()
		defer j.s.mu.Unlock()
		if err := t.alive(); err != nil {
			return err
		}
		defer t.end()
		return j.commitTransact(id, started, result, effects)
	})
	return result, err
}

func (j *Journal) commitTransact(id string, started turnlog.Entry, result turnlog.CallResult, effects *effects) error {
	draft, err := j.fenced(id)
	if err != nil {
		return err
	}
	j.s.commit++
	if err := j.entry(draft, started, nil); err != nil {
		return err
	}
	draft.writes = append(draft.writes, id)
	if err := j.entry(draft, turnlog.Entry{Results: []turnlog.CallResult{result}}, nil); err != nil {
		return err
	}
	j.s.state.setTurn(draft)
	j.s.state.writes = append(j.s.state.writes, writeRow{j.grant.TurnID, j.grant.GrantID, j.s.commit})
	if result.State == turnkeeper.CallSucceeded {
		effects.happen()
	}
	return nil
}

// Late stores a result that came after the lease was lost: as the call's result if the call is
// open and no other worker has the turn, else as its late result.
func (j *Journal) Late(ctx context.Context, r turnlog.CallResult) error {
	return j.conn.ask(ctx, "late", func() error {
		return j.inRow(ctx, func(*[]Bell) error {
			row := j.s.state.turn(j.grant.TurnID)
			if row == nil {
				return nil
			}
			draft := row.draft()
			draft.late(r, j.grant.GrantID, j.s)
			j.s.state.turns[draft.ID-1] = draft
			if !draft.State.Terminal() {
				j.s.state.open[draft.Lane] = draft
			}
			return nil
		})
	})
}

// late stores a late result of a start that was made under a grant. It follows the function late_result.
func (t *turnRow) late(r turnlog.CallResult, grant turnkeeper.GrantID, s *Store) {
	call := t.call(r.Key)
	if call == nil {
		return
	}
	open := (call.State == turnkeeper.CallStarted || call.State == turnkeeper.CallRunning) && !call.Awaited
	free := t.State == turnkeeper.TurnQueued || t.State == turnkeeper.TurnRunning && t.GrantID == grant
	fits := open && free && call.Nonce == r.Nonce
	if s.bugs.has(BugLateOverwrites) {
		fits = fits || call.State == turnkeeper.CallUnknown && call.Nonce == r.Nonce
	}
	if slices.ContainsFunc(t.starts, func(start startRow) bool {
		return start.key == r.Key && start.nonce == r.Nonce
	}) {
		t.keep(s.now(), r.Attached...)
	}
	s.state.labels.add(s.bugs, r.LabelRows(t.ID))
	if fits {
		if call.State != turnkeeper.CallRunning { // what the model has seen of a running call is kept
			call.Shown = r.Shown
		}
		call.State, call.Preview, call.EndedAt = r.State, r.Preview, s.now()
		t.writes = append(t.writes, "")
		return
	}
	for _, start := range t.starts {
		if start.key == r.Key && start.nonce == r.Nonce && call.LateResult == "" {
			call.LateResult = r.Shown
		}
	}
}

// endWriteOf returns what the end of a dispatch with this outcome writes.
func endWriteOf(o turnlog.Outcome) endWrite {
	return endWrite{Consequence: turnlog.ConsequenceOf(o), outcome: o, job: true}
}

type effectsKey struct{}

// effects collects the functions that a transactional tool registered in its transaction.
type effects struct{ all []func() }

func (e *effects) happen() {
	for _, f := range e.all {
		f()
	}
}

// OnCommit registers f in the transaction of a transactional tool. f is called when the
// record of the tool's success commits, and never otherwise. It must not call the
// store. Outside of such a tool ok is false, and f is dropped.
func OnCommit(ctx context.Context, f func()) (ok bool) {
	e, ok := ctx.Value(effectsKey{}).(*effects)
	if ok {
		e.all = append(e.all, f)
	}
	return ok
}

// errKeyTaken means that a unique key refused a write.
var errKeyTaken = errors.New("a key of the journal is taken")
