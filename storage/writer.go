package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// A TurnWriter writes to the journal of one turn under one grant. It belongs
// to one goroutine.
type TurnWriter struct {
	store   *Store
	grant   turnkeeper.Grant
	agent   string
	entries int64 // writes on record; tells a write that was not answered from one that was not done
	lastSeq int64
	paging  map[turnkeeper.CallKey]bool
}

// An Ending is what the caller of Append decides about the end of a dispatch,
// beside the turn's own Outcome.
type Ending struct {
	Message     turnkeeper.MessageState // MessageWaiting: the message stays for another attempt
	Log         string                  // outcome in the grant log: finished, handed_back or deferred
	LaneBackoff time.Duration           // of a failed turn's lane
}

// clean makes text storable and masks what must not be stored.
func (w *TurnWriter) clean(text string) string { return w.store.clean(text) }

// Writer returns the writer for a turn as record has it, under the grant.
func (s *Store) Writer(record turnkeeper.Record, grant turnkeeper.Grant) *TurnWriter {
	w := &TurnWriter{
		store: s, grant: grant, agent: record.Turn.Agent, entries: record.Entries, lastSeq: record.Turn.LastSeq,
		paging: map[turnkeeper.CallKey]bool{},
	}
	for _, round := range record.Rounds {
		w.remember(&round)
	}
	return w
}

// Append makes the entry durable, whole or not at all, and only while the
// writer's grant is the turn's newest: else it fails with ErrFenced, and with
// ErrJournalMoved when the journal is not what the entry builds on. It waits
// for a database that is away until ctx ends. A commit that was sent and not
// answered is settled by reading back, so that nil means: written, once.
//
// ending is looked at only when the entry has an Outcome.
func (w *TurnWriter) Append(ctx context.Context, e turnkeeper.Entry, ending Ending) error {
	pool := w.store.pool
	if e.Outcome != nil {
		pool = w.store.finish
	}
	err := w.write(ctx, 1, len(e.Events), func(ctx context.Context) error {
		p := &pipeline{}
		if err := w.queue(ctx, p.queries(), 0, e, ending); err != nil {
			return err
		}
		return p.send(ctx, pool)
	})
	if err == nil {
		w.remember(e.Round)
	}
	return err
}

// remember notes which calls are paging calls, which never count as executed.
func (w *TurnWriter) remember(r *turnkeeper.Round) {
	if r == nil {
		return
	}
	for _, call := range r.Calls {
		if call.Paging {
			w.paging[call.Key] = true
		}
	}
}

// Transact records the start of a call, runs it, and records its result, in one
// transaction, which run finds in its context (see TxFrom). A result in state
// CallFailed undoes what run wrote. It returns what was recorded, which is a
// failure where a statement of run's had failed. Errors are those of Append; when the
// transaction cannot commit, nothing of the call has happened, and run is run
// again when the reason passes.
func (w *TurnWriter) Transact(ctx context.Context, start turnkeeper.CallStart,
	run func(context.Context) turnkeeper.CallResult,
) (result turnkeeper.CallResult, err error) {
	const steps = 2 // one for the start, one for the result
	err = w.write(ctx, steps, 0, func(ctx context.Context) error {
		return translate(pgx.BeginFunc(ctx, w.store.pool, func(tx pgx.Tx) error {
			if err := w.sendIn(ctx, tx, 0, turnkeeper.Entry{Starts: []turnkeeper.CallStart{start}}); err != nil {
				return err
			}
			if result, err = runInSavepoint(ctx, tx, run); err != nil {
				return err
			}
			return w.sendIn(ctx, tx, 1, turnkeeper.Entry{Results: []turnkeeper.CallResult{result}})
		}))
	})
	return result, err
}

func (w *TurnWriter) sendIn(ctx context.Context, tx pgx.Tx, step int64, e turnkeeper.Entry) error {
	p := &pipeline{}
	if err := w.queue(ctx, p.queries(), step, e, Ending{}); err != nil {
		return err
	}
	return p.send(ctx, tx)
}

// runInSavepoint runs a tool in a savepoint: a failure undoes its writes and
// leaves the transaction usable for the record of the failure. A tool that
// calls itself a success after a statement of its own failed is a failure too.
func runInSavepoint(ctx context.Context, tx pgx.Tx, run func(context.Context) turnkeeper.CallResult) (turnkeeper.CallResult, error) {
	save, err := tx.Begin(ctx)
	if err != nil {
		return turnkeeper.CallResult{}, err
	}
	result := run(withTx(ctx, save))
	const inFailedTransaction = 'E'
	if result.State == turnkeeper.CallSucceeded && tx.Conn().PgConn().TxStatus() == inFailedTransaction {
		result.State, result.Output = turnkeeper.CallFailed, nil
		result.Shown = "tool error: a statement of the tool failed in the database, and so nothing of it was kept"
		result.Preview = result.Shown
	}
	if result.State == turnkeeper.CallSucceeded {
		return result, save.Commit(ctx)
	}
	return result, save.Rollback(ctx)
}

const (
	firstRetry = 50 * time.Millisecond
	slowRetry  = time.Second
)

// write runs one attempt after another until the entry is on record or cannot
// be any more.
func (w *TurnWriter) write(ctx context.Context, steps int64, events int, attempt func(context.Context) error) error {
	wait := firstRetry
	for {
		err := attempt(ctx)
		if err == nil {
			w.advance(steps, events)
			return nil
		}
		if keyTaken(err) {
			return fmt.Errorf("%w: %w", turnkeeper.ErrJournalMoved, err)
		}
		// A refusal may be the echo of our own write: its commit went through
		// and the answer was lost, so that the attempt after it finds itself,
		// or the turn that it has ended.
		refused := errors.Is(err, turnkeeper.ErrJournalMoved) || errors.Is(err, turnkeeper.ErrFenced)
		echo := refused && wait > firstRetry
		if !uncertain(err) && !echo && !endedOnTheWay(ctx, err) {
			return err
		}
		written, settled := w.readBack(ctx, steps)
		if settled != nil {
			return settled
		}
		if written {
			w.advance(steps, events)
			return nil
		}
		if echo {
			return err
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
		wait = min(wait*2, slowRetry)
	}
}

func (w *TurnWriter) advance(steps int64, events int) {
	w.entries += steps
	w.lastSeq += int64(events)
}

// endedOnTheWay says that the caller's time ended while a write was under way:
// whether it was done must still be found out.
func endedOnTheWay(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// readBackGrace bounds the question whether a write was done when the
// writer's own time is over.
const readBackGrace = 3 * time.Second

// readBack says whether the write under way is on record. An error means that
// the grant is no longer the turn's, or that the time to find out is over.
func (w *TurnWriter) readBack(ctx context.Context, steps int64) (written bool, err error) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), readBackGrace, context.Cause(ctx))
		defer cancel()
	}
	wait := firstRetry
	for {
		row, err := w.store.q.ReadBack(ctx, int64(w.grant.TurnID))
		switch err = translate(err); {
		case err == nil && row.Token != w.grant.Token:
			return false, turnkeeper.ErrFenced
		case err == nil && row.Entries == w.entries+steps:
			return true, nil
		case err == nil && (row.State != string(turnkeeper.TurnRunning) || orZero(row.GrantID) != string(w.grant.GrantID)):
			return false, turnkeeper.ErrFenced
		case err == nil && row.Entries == w.entries:
			return false, nil
		case err == nil:
			return false, turnkeeper.ErrJournalMoved
		case !uncertain(err) || !pause(ctx, wait):
			return false, errors.Join(context.Cause(ctx), err)
		}
		wait = min(wait*2, slowRetry)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// queue puts the statements of an entry into a pipeline, the fence first. The
// events ride with the round or with the results where there are any.
func (w *TurnWriter) queue(ctx context.Context, q *dbsqlc.Queries, step int64, e turnkeeper.Entry, ending Ending) error {
	events := w.store.eventsOf(w.lastSeq, e.Events)
	ride := func(with bool) storedEvents {
		if !with {
			return noEvents
		}
		taken := events
		events = noEvents
		return taken
	}
	return errors.Join(
		q.Step(ctx, w.stepOf(step, e)),
		w.queueAnswers(ctx, q, e.Verdicts, noEvents),
		w.queueRound(ctx, q, e.Round, ride(e.Round != nil)),
		w.queueStarts(ctx, q, e.Starts),
		w.queueOutputs(ctx, q, e.Results),
		w.queueAnswers(ctx, q, e.Results, ride(len(e.Results) > 0)),
		w.queueEvents(ctx, q, events),
		w.queueEnd(ctx, q, e.Outcome, ending),
	)
}

func (w *TurnWriter) stepOf(step int64, e turnkeeper.Entry) dbsqlc.StepParams {
	params := dbsqlc.StepParams{
		Turn: int64(w.grant.TurnID), Token: w.grant.Token, GrantID: string(w.grant.GrantID), Worker: string(w.grant.WorkerID),
		Expected: w.entries + step, Events: int32(len(e.Events)), Calls: w.executed(e), //nolint:gosec // far below
	}
	if e.Round != nil {
		u := e.Round.Usage
		params.Rounds = 1
		if e.Round.Charged {
			params.Charged = 1
		}
		params.Input, params.Output, params.Cached = u.InputTokens, u.OutputTokens, u.CachedTokens
		params.Reasoning, params.Estimated = u.ReasoningTokens, u.Estimated
	}
	return params
}

// executed counts the calls of an entry that begin to count as executed with
// it: first starts, and results of calls that needed no start on record.
func (w *TurnWriter) executed(e turnkeeper.Entry) (n int32) {
	for _, start := range e.Starts {
		if start.Attempt == 1 && !w.paging[start.Key] {
			n++
		}
	}
	for _, result := range e.Results {
		if result.Nonce == "" && ran(result.State) && !w.paging[result.Key] {
			n++
		}
	}
	return n
}

// ran says that a call without a start on record has run.
func ran(s turnkeeper.CallState) bool {
	return s == turnkeeper.CallSucceeded || s == turnkeeper.CallFailed
}

func (w *TurnWriter) queueRound(ctx context.Context, q *dbsqlc.Queries, r *turnkeeper.Round, events storedEvents) error {
	if r == nil {
		return nil
	}
	p := dbsqlc.InsertRoundParams{
		TurnID: int64(w.grant.TurnID), Round: int32(r.Number), Charged: r.Charged, Provider: w.clean(r.Provider), Model: w.clean(r.Model), //nolint:gosec // at most 20
		Attempts: int32(r.Attempts), LatencyMs: max(r.Latency.Milliseconds(), 0), FinishReason: w.clean(r.FinishReason), //nolint:gosec // few
		InputTokens: r.Usage.InputTokens, OutputTokens: r.Usage.OutputTokens, CachedTokens: r.Usage.CachedTokens,
		ReasoningTokens: r.Usage.ReasoningTokens, UsageEstimated: r.Usage.Estimated, Text: w.clean(r.Text), Reasoning: w.clean(r.Reasoning),
		FirstSeq: events.first, LastSeq: events.last, EventTypes: events.types, EventRounds: events.rounds,
		EventBlocks: events.blocks, EventData: events.data, Agent: w.agent,
	}
	if r.Raw != nil {
		raw := w.clean(string(r.Raw))
		p.Raw = &raw
	}
	for _, call := range r.Calls {
		p.Ordinals = append(p.Ordinals, int32(call.Key.Ordinal)) //nolint:gosec // few
		p.WireIds = append(p.WireIds, w.clean(call.WireID))
		p.ProviderIds = append(p.ProviderIds, w.clean(call.ProviderID))
		p.Names = append(p.Names, w.clean(call.Name))
		p.Arguments = append(p.Arguments, w.clean(call.Arguments))
		p.RawArgs = append(p.RawArgs, w.clean(call.RawArgs))
		p.ArgsHashes = append(p.ArgsHashes, call.ArgsHash)
		p.Effects = append(p.Effects, string(orOnce(call.Effect)))
		p.Pagings = append(p.Pagings, call.Paging)
		p.States = append(p.States, string(call.State))
		p.Shown = append(p.Shown, w.clean(call.Shown))
		p.Previews = append(p.Previews, w.clean(call.Preview))
	}
	return q.InsertRound(ctx, p)
}

func orOnce(e turnkeeper.Effect) turnkeeper.Effect {
	if e == "" {
		return turnkeeper.EffectOnce
	}
	return e
}

func (w *TurnWriter) queueStarts(ctx context.Context, q *dbsqlc.Queries, starts []turnkeeper.CallStart) error {
	if len(starts) == 0 {
		return nil
	}
	p := dbsqlc.StartCallsParams{Turn: int64(w.grant.TurnID), Token: w.grant.Token, Worker: string(w.grant.WorkerID)}
	for _, s := range starts {
		p.Rounds = append(p.Rounds, int32(s.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(s.Key.Ordinal)) //nolint:gosec // few
		p.Attempts = append(p.Attempts, int32(s.Attempt))     //nolint:gosec // few
		p.Nonces = append(p.Nonces, s.Nonce)
	}
	return q.StartCalls(ctx, p)
}

func (w *TurnWriter) queueAnswers(ctx context.Context, q *dbsqlc.Queries, results []turnkeeper.CallResult, events storedEvents) error {
	if len(results) == 0 {
		return nil
	}
	p := dbsqlc.AnswerCallsParams{
		TurnID: int64(w.grant.TurnID), FirstSeq: events.first, LastSeq: events.last, EventTypes: events.types,
		EventRounds: events.rounds, EventBlocks: events.blocks, EventData: events.data,
	}
	for _, r := range results {
		p.Rounds = append(p.Rounds, int32(r.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(r.Key.Ordinal)) //nolint:gosec // few
		p.Nonces = append(p.Nonces, r.Nonce)
		p.States = append(p.States, string(r.State))
		p.Shown = append(p.Shown, w.clean(r.Shown))
		p.Previews = append(p.Previews, w.clean(r.Preview))
		p.Durations = append(p.Durations, max(r.Duration.Milliseconds(), 0))
		var output turnkeeper.OutputID
		if r.Output != nil {
			output = r.Output.ID
		}
		p.Outputs = append(p.Outputs, string(output))
	}
	return q.AnswerCalls(ctx, p)
}

func (w *TurnWriter) queueOutputs(ctx context.Context, q *dbsqlc.Queries, results []turnkeeper.CallResult) error {
	p := dbsqlc.InsertOutputsParams{TurnID: int64(w.grant.TurnID)}
	for _, r := range results {
		o := r.Output
		if o == nil {
			continue
		}
		p.Ids = append(p.Ids, string(o.ID))
		p.Rounds = append(p.Rounds, int32(r.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(r.Key.Ordinal)) //nolint:gosec // few
		p.MediaTypes = append(p.MediaTypes, w.clean(o.MediaType))
		p.Contents = append(p.Contents, w.clean(o.Text))
		p.Bytes = append(p.Bytes, o.Bytes)
		p.IsBinary = append(p.IsBinary, o.Bytes != nil)
		p.SizeBytes = append(p.SizeBytes, o.SizeBytes)
		p.RawBytes = append(p.RawBytes, o.RawBytes)
		p.Chars = append(p.Chars, o.Chars)
		p.Tokens = append(p.Tokens, o.Tokens)
		p.Sha256s = append(p.Sha256s, o.SHA256)
		p.Incompletes = append(p.Incompletes, o.Incomplete)
		p.Descriptions = append(p.Descriptions, w.clean(o.Description))
	}
	if len(p.Ids) == 0 {
		return nil
	}
	return q.InsertOutputs(ctx, p)
}

func (w *TurnWriter) queueEvents(ctx context.Context, q *dbsqlc.Queries, events storedEvents) error {
	if len(events.types) == 0 {
		return nil
	}
	return q.InsertEvents(ctx, events.params(w.grant.TurnID))
}

func (w *TurnWriter) queueEnd(ctx context.Context, q *dbsqlc.Queries, o *turnkeeper.Outcome, ending Ending) error {
	if o == nil {
		return nil
	}
	return q.EndDispatch(ctx, dbsqlc.EndDispatchParams{
		Turn: int64(w.grant.TurnID), GrantID: string(w.grant.GrantID), State: string(o.State), Log: ending.Log,
		Stop: string(o.StopReason), Reply: w.clean(o.Reply), InnerDialogue: w.clean(o.InnerDialogue),
		ErrorClass: w.clean(o.ErrorClass), Error: w.clean(o.Error), MessageState: string(ending.Message),
		Backoff: o.Backoff, LaneBackoff: ending.LaneBackoff, Job: int64(w.grant.JobID),
	})
}

// Late keeps a result that came after the lease was lost: as the call's result
// while nobody has given a verdict on it, else beside the verdict.
func (w *TurnWriter) Late(ctx context.Context, r turnkeeper.CallResult) error {
	return translate(w.store.q.LateResult(ctx, dbsqlc.LateResultParams{
		Turn: int64(w.grant.TurnID), Round: int32(r.Key.Round), Ordinal: int32(r.Key.Ordinal), Nonce: r.Nonce, //nolint:gosec // few
		State: string(r.State), Shown: w.clean(r.Shown), Preview: w.clean(r.Preview),
	}))
}
