package journal

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
)

// A step is the position of an entry in a write.
type step struct {
	id    string // of the write
	after int64  // entries before it in the same write
}

// queue queues the statements of an entry, the fence first.
func (w *Writer) queue(ctx context.Context, q *dbsqlc.Queries, at step, e turnlog.Entry, ending Ending) error {
	return errors.Join(
		q.Step(ctx, w.stepOf(at, e)),
		w.queueAnswers(ctx, q, e.Verdicts),
		w.queueRound(ctx, q, e),
		w.queueFailed(ctx, q, e.Failed),
		w.queueStarts(ctx, q, e.Starts),
		w.queueDetached(ctx, q, e.Starts),
		w.queueSpawns(ctx, q, e.Starts),
		w.queueOutputs(ctx, q, e.Results),
		w.queueAnswers(ctx, q, e.Results),
		w.queueUsage(ctx, q, e.Results),
		w.queueEnd(ctx, q, e, ending),
		w.queueHealth(ctx, q, e),
	)
}

func (w *Writer) stepOf(at step, e turnlog.Entry) dbsqlc.StepParams {
	events := w.store.stored(e.Events)
	params := dbsqlc.StepParams{
		Turn: int64(w.grant.TurnID), Token: w.grant.Token, GrantID: string(w.grant.GrantID), Worker: string(w.grant.WorkerID),
		WriteID: at.id, Expected: w.journal.Entries + at.after, Calls: w.executed(e),
		Types: events.types, EventRounds: events.rounds, Blocks: events.blocks, Data: events.data,
	}
	if !notesModels(e) && e.Outcome == nil {
		params.Answered = e.Answered
	}
	u := usedBy(e)
	params.Input, params.Output, params.Cached = u.InputTokens, u.OutputTokens, u.CachedTokens
	params.Reasoning, params.Estimated = u.ReasoningTokens, u.Estimated
	if e.Round != nil {
		params.Rounds = 1
		if e.Round.Charged {
			params.Charged = 1
		}
	}
	return params
}

// usedBy returns the usage of all model calls of an entry: that of its round, the failed
// ones, and those made for tool calls.
func usedBy(e turnlog.Entry) (u turnkeeper.Usage) {
	if e.Round != nil {
		u = e.Round.Usage
	}
	for _, failed := range e.Failed {
		u = u.Add(failed.Usage)
	}
	for _, result := range e.Results {
		u = u.Add(result.Usage)
	}
	return u
}

// executed returns how many calls count as executed once the entry is written: first
// starts, and results of calls that needed no start on record.
func (w *Writer) executed(e turnlog.Entry) (n int32) {
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

// ran reports whether a call without a start on record has run.
func ran(s turnkeeper.CallState) bool {
	return s == turnkeeper.CallSucceeded || s == turnkeeper.CallFailed
}

func (w *Writer) queueRound(ctx context.Context, q *dbsqlc.Queries, e turnlog.Entry) error {
	r := e.Round
	if r == nil {
		return nil
	}
	p := dbsqlc.InsertRoundParams{
		TurnID: int64(w.grant.TurnID), Round: int32(r.Number), Charged: r.Charged, Provider: w.clean(r.Provider), Model: w.clean(r.Model), //nolint:gosec // at most 20
		Attempts: int32(r.Attempts), LatencyMs: max(r.Latency.Milliseconds(), 0), FinishReason: w.clean(r.FinishReason), //nolint:gosec // few
		InputTokens: r.Usage.InputTokens, OutputTokens: r.Usage.OutputTokens, CachedTokens: r.Usage.CachedTokens,
		ReasoningTokens: r.Usage.ReasoningTokens, UsageEstimated: r.Usage.Estimated, Text: w.clean(r.Text), Reasoning: w.clean(r.Reasoning),
		Agent: w.agent, Version: journalVersion,
	}
	if r.Raw != nil {
		raw := w.clean(string(r.Raw))
		p.Raw = &raw
	}
	if r.Recipe != nil {
		p.Request = w.clean(recipeJSON(*r.Recipe))
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
	return errors.Join(q.InsertRound(ctx, p), w.queueParts(ctx, q, e.Parts), w.queueSummary(ctx, q, e.Summary))
}

func (w *Writer) queueFailed(ctx context.Context, q *dbsqlc.Queries, failed []turnlog.FailedAttempt) error {
	if len(failed) == 0 {
		return nil
	}
	p := dbsqlc.InsertFailedAttemptsParams{TurnID: int64(w.grant.TurnID)}
	for _, f := range failed {
		p.Rounds, p.Attempts = append(p.Rounds, int32(f.Round)), append(p.Attempts, int32(f.Attempt)) //nolint:gosec // few
		p.Providers, p.Models = append(p.Providers, w.clean(f.Provider)), append(p.Models, w.clean(f.Model))
		p.Classes, p.Errors = append(p.Classes, f.Class), append(p.Errors, w.clean(f.Error))
		p.Texts, p.Reasonings = append(p.Texts, w.clean(f.Text)), append(p.Reasonings, w.clean(f.Reasoning))
		p.Latencies = append(p.Latencies, max(f.Latency.Milliseconds(), 0))
		p.Inputs, p.Outputs = append(p.Inputs, f.Usage.InputTokens), append(p.Outputs, f.Usage.OutputTokens)
		p.Cacheds, p.ReasoningTokens = append(p.Cacheds, f.Usage.CachedTokens), append(p.ReasoningTokens, f.Usage.ReasoningTokens)
		p.Estimateds = append(p.Estimateds, f.Usage.Estimated)
	}
	return q.InsertFailedAttempts(ctx, p)
}

func (w *Writer) queueParts(ctx context.Context, q *dbsqlc.Queries, parts []turnlog.RequestPart) error {
	if len(parts) == 0 {
		return nil
	}
	var hashes, contents []string
	// One order for all writers prevents deadlocks between two that write the
	// same parts.
	for _, part := range slices.SortedFunc(slices.Values(parts), byHash) {
		hashes, contents = append(hashes, part.SHA256), append(contents, w.clean(part.Content))
	}
	return q.InsertRequestParts(ctx, hashes, contents)
}

func (w *Writer) queueSummary(ctx context.Context, q *dbsqlc.Queries, summary *turnlog.Summary) error {
	if summary == nil || summary.Text == "" {
		return nil
	}
	return q.InsertSummary(ctx, int64(summary.UpTo), w.clean(summary.Text), int64(w.grant.TurnID))
}

func orOnce(e turnkeeper.Effect) turnkeeper.Effect {
	if e == "" {
		return turnkeeper.EffectOnce
	}
	return e
}

func (w *Writer) queueStarts(ctx context.Context, q *dbsqlc.Queries, starts []turnlog.CallStart) error {
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

func (w *Writer) queueAnswers(ctx context.Context, q *dbsqlc.Queries, results []turnlog.CallResult) error {
	if len(results) == 0 {
		return nil
	}
	p := dbsqlc.AnswerCallsParams{TurnID: int64(w.grant.TurnID)}
	for _, r := range results {
		p.Rounds = append(p.Rounds, int32(r.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(r.Key.Ordinal)) //nolint:gosec // few
		p.Nonces = append(p.Nonces, r.Nonce)
		p.States = append(p.States, string(r.State))
		p.Shown = append(p.Shown, w.clean(r.Shown))
		p.Previews = append(p.Previews, w.clean(r.Preview))
		p.Durations = append(p.Durations, max(r.Duration.Milliseconds(), 0))
		output := r.OutputID
		if r.Output != nil {
			output = r.Output.ID
		}
		p.Outputs = append(p.Outputs, string(output))
	}
	return q.AnswerCalls(ctx, p)
}

// queueUsage stores with each call the usage of the model calls made for it. Few calls
// have any.
func (w *Writer) queueUsage(ctx context.Context, q *dbsqlc.Queries, results []turnlog.CallResult) error {
	p := dbsqlc.AddCallUsageParams{TurnID: int64(w.grant.TurnID)}
	for _, r := range results {
		if r.Usage == (turnkeeper.Usage{}) {
			continue
		}
		p.Rounds = append(p.Rounds, int32(r.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(r.Key.Ordinal)) //nolint:gosec // few
		p.Inputs, p.Outputs = append(p.Inputs, r.Usage.InputTokens), append(p.Outputs, r.Usage.OutputTokens)
		p.Cacheds, p.Reasonings = append(p.Cacheds, r.Usage.CachedTokens), append(p.Reasonings, r.Usage.ReasoningTokens)
		p.Estimateds = append(p.Estimateds, r.Usage.Estimated)
	}
	if len(p.Rounds) == 0 {
		return nil
	}
	return q.AddCallUsage(ctx, p)
}

func (w *Writer) queueOutputs(ctx context.Context, q *dbsqlc.Queries, results []turnlog.CallResult) error {
	return w.store.queueOutputs(ctx, q, w.grant, results)
}

// storedWith returns the outputs that results store, each with its result.
func storedWith(results []turnlog.CallResult) iter.Seq2[turnlog.CallResult, *turnkeeper.Output] {
	return func(yield func(turnlog.CallResult, *turnkeeper.Output) bool) {
		for _, r := range results {
			if r.Output != nil && !yield(r, r.Output) {
				return
			}
			for i := range r.Attached {
				if !yield(r, &r.Attached[i]) {
					return
				}
			}
		}
	}
}

// queueOutputs queues the inserts of the outputs that results store. The grant matters
// only if an output is Drafted.
func (s *Store) queueOutputs(ctx context.Context, q *dbsqlc.Queries, grant turnkeeper.Grant, results []turnlog.CallResult) error {
	p := dbsqlc.InsertOutputsParams{TurnID: int64(grant.TurnID)}
	var large chunks
	var drafted []string
	for r, o := range storedWith(results) {
		text, bytes := s.db.Clean(o.Text), o.Bytes
		inChunks := o.Drafted || max(len(text), len(bytes)) > turnkeeper.OutputChunkBytes
		if o.Drafted {
			drafted = append(drafted, string(o.ID))
		}
		if inChunks {
			large.text(o.ID, 0, text)
			large.bytes(o.ID, 0, bytes)
			text, bytes = "", bytes[:0]
		}
		p.Ids = append(p.Ids, string(o.ID))
		p.Rounds = append(p.Rounds, int32(r.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(r.Key.Ordinal)) //nolint:gosec // few
		p.MediaTypes = append(p.MediaTypes, s.db.Clean(o.MediaType))
		p.Contents = append(p.Contents, text)
		p.Bytes = append(p.Bytes, bytes)
		p.IsBinary = append(p.IsBinary, bytes != nil)
		p.Chunked = append(p.Chunked, inChunks)
		p.SizeBytes = append(p.SizeBytes, o.SizeBytes)
		p.RawBytes = append(p.RawBytes, o.RawBytes)
		p.Chars = append(p.Chars, o.Chars)
		p.Tokens = append(p.Tokens, o.Tokens)
		p.Sha256s = append(p.Sha256s, o.SHA256)
		p.Incompletes = append(p.Incompletes, o.Incomplete)
		p.Descriptions = append(p.Descriptions, s.db.Clean(o.Description))
	}
	if len(p.Ids) == 0 {
		return nil
	}
	return errors.Join(q.InsertOutputs(ctx, p), queueDrafts(ctx, q, grant, drafted), queueChunks(ctx, q, large))
}

func (w *Writer) queueEnd(ctx context.Context, q *dbsqlc.Queries, e turnlog.Entry, ending Ending) error {
	o := e.Outcome
	if o == nil {
		return nil
	}
	var answered []string
	if !notesModels(e) {
		answered = e.Answered
	}
	return errors.Join(q.EndDispatch(ctx, dbsqlc.EndDispatchParams{
		Answered: answered,
		Turn:     int64(w.grant.TurnID), GrantID: string(w.grant.GrantID), State: string(o.State), Log: ending.Log,
		Stop: string(o.StopReason), Reply: w.clean(o.Reply), InnerDialogue: w.clean(o.InnerDialogue),
		ErrorClass: w.clean(o.ErrorClass), Error: w.clean(o.Error), MessageState: string(ending.Message),
		Backoff: o.Backoff, LaneBackoff: ending.LaneBackoff, Job: int64(w.grant.JobID),
	}), AddSilentReply(ctx, q, w.grant.TurnID, *o))
}

// AddSilentReply inserts the reply of a turn that has just ended with a Silent outcome. Its body is empty.
func AddSilentReply(ctx context.Context, q *dbsqlc.Queries, turn turnkeeper.TurnID, o turnlog.Outcome) error {
	if !o.Silent {
		return nil
	}
	return q.InsertSilentReply(ctx, int64(turn))
}

// notesModels reports whether an entry needs a statement of its own for models' health. Otherwise the fence does it, or the
// end of a turn that has not failed.
func notesModels(e turnlog.Entry) bool {
	return len(e.ModelFailures) > 0 || e.Outcome != nil && e.Outcome.State == turnkeeper.TurnFailed && len(e.Answered) > 0
}

// queueHealth queues the updates of models' health, and of the message and lane of a turn that
// failed. It must come after the lane's lease: see the function note_models.
func (w *Writer) queueHealth(ctx context.Context, q *dbsqlc.Queries, e turnlog.Entry) error {
	if o := e.Outcome; o != nil && o.State == turnkeeper.TurnFailed {
		if err := q.NoteFault(ctx, dbrow.OrEmpty(o.WaitsFor), int64(w.grant.TurnID), o.Counted); err != nil {
			return err
		}
	}
	if !notesModels(e) {
		return nil
	}
	p := dbsqlc.NoteModelsParams{
		Answered: dbrow.OrEmpty(e.Answered), Failed: []string{}, Seen: []int32{}, Classes: []string{}, Errors: []string{}, Asked: []time.Duration{},
	}
	for _, f := range e.ModelFailures {
		p.Failed = append(p.Failed, f.Model)
		p.Seen = append(p.Seen, int32(f.Seen)) //nolint:gosec // few
		p.Classes = append(p.Classes, w.clean(f.ErrorClass))
		p.Errors = append(p.Errors, w.clean(f.Error))
		p.Asked = append(p.Asked, f.RetryAfter)
	}
	return q.NoteModels(ctx, p)
}
