package journal

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
)

// A step is the position of a write in a transaction.
type step struct {
	id    string // of the write
	after int64  // rows of the journal before it in the same transaction
}

// A change is a write in the form in which it is sent: its journal row, the starts of its calls, the end of its
// dispatch, and additional statements.
type change struct {
	grant    turnkeeper.Grant
	write    string
	seen     int64 // writes before it that its writer has seen
	totals   totals
	events   storedEvents
	answers  []storedRound // oldest first
	results  []storedResult
	starts   []storedStart
	answered proofs                // of models
	states   callStates            // of the calls, after the change
	parts    []turnlog.RequestPart // that it stores

	before statements // before the end; nil: none
	end    *end       // nil: the dispatch continues
	after  statements // after the end; nil: none
}

// A storedRound is an answer of the model as the columns of the table journal have it, and an element of the column
// earlier.
type storedRound struct {
	Number    int32           `json:"round"` // 0: no answer
	Answer    json.RawMessage `json:"answer"`
	Calls     json.RawMessage `json:"calls,omitempty"`
	Text      string          `json:"text"`
	Reasoning string          `json:"reasoning"`
	Raw       *string         `json:"raw,omitempty"`
	Request   json.RawMessage `json:"request,omitempty"`
}

// totals are what a change adds to the totals of its turn.
type totals struct {
	rounds, charged, executed int64
	usage                     turnkeeper.Usage
}

func (t totals) add(other totals) totals {
	return totals{t.rounds + other.rounds, t.charged + other.charged, t.executed + other.executed,
		t.usage.Add(other.usage)}
}

// A storedStart is the start of a call as append_many takes it: see its type call_start.
type storedStart struct {
	Round    int               `json:"round"`
	Ordinal  int               `json:"ordinal"`
	Attempt  int               `json:"attempt"`
	Effect   turnkeeper.Effect `json:"effect"`
	Nonce    string            `json:"nonce"`
	Agent    string            `json:"agent"`
	Name     string            `json:"name"`
	ArgsHash string            `json:"args_hash"`
	Ask      int64             `json:"ask"` // 0: none
	RunHash  string            `json:"run_hash"`
	RunArgs  string            `json:"run_args,omitempty"`
}

type end struct {
	turnlog.Outcome
	turnlog.Consequence
	calls    string // of the reply
	answered proofs
}

// proofs are models that answered, each with what its answer proves: see the function note_models.
type proofs struct {
	models []string
	proofs []int64
}

// Proofs of an answer to a worker's probe, and of a refusal.
const (
	proofProbe   = 0
	proofRefusal = -1
)

// proofsOf returns the proofs of an entry of a turn.
func proofsOf(e turnlog.Entry, turn turnkeeper.TurnID) proofs {
	a := proofs{models: []string{}, proofs: []int64{}}
	for _, kind := range []struct {
		models []string
		proof  int64
	}{{e.Answered, int64(turn)}, {e.Probed, proofProbe}, {e.Refused, proofRefusal}} {
		a.models = append(a.models, kind.models...)
		a.proofs = append(a.proofs, slices.Repeat([]int64{kind.proof}, len(kind.models))...)
	}
	return a
}

// whole returns the change for a write: an entry, with its earlier ones.
func (w *Writer) whole(id string, e turnlog.Entry, ending turnlog.Consequence) (whole *change, err error) {
	before := w.calls
	defer func() { w.calls = before }()
	parts := e.Sequence()
	for i := 1; i < len(parts); i++ { // the parts of all requests are inserted together: see queueParts
		parts[0].Parts, parts[i].Parts = append(slices.Clip(parts[0].Parts), parts[i].Parts...), nil
	}
	for _, part := range parts {
		c, err := w.change(step{id: id}, part, ending)
		if err != nil {
			return nil, err
		}
		if whole != nil {
			c.follow(whole)
		}
		whole, w.calls = c, c.states
	}
	return whole, nil
}

// follow adds to a change the one before it in the same write.
func (c *change) follow(before *change) {
	c.totals = before.totals.add(c.totals)
	c.events.types, c.events.data = slices.Concat(before.events.types, c.events.types),
		slices.Concat(before.events.data, c.events.data)
	c.events.rounds, c.events.blocks = slices.Concat(before.events.rounds, c.events.rounds),
		slices.Concat(before.events.blocks, c.events.blocks)
	c.answers = slices.Concat(before.answers, c.answers)
	replaced := func(r storedResult) bool { // the newest result of a call counts
		return slices.ContainsFunc(c.results, func(n storedResult) bool {
			return n.Round == r.Round && n.Ordinal == r.Ordinal
		})
	}
	c.results = slices.Concat(slices.DeleteFunc(slices.Clone(before.results), replaced), c.results)
	c.starts = slices.Concat(before.starts, c.starts)
	c.answered.models = slices.Concat(before.answered.models, c.answered.models)
	c.answered.proofs = slices.Concat(before.answered.proofs, c.answered.proofs)
	c.parts = slices.Concat(before.parts, c.parts)
	c.before, c.after = both(before.before, c.before), both(before.after, c.after)
}

// statements queue statements of a transaction.
type statements func(context.Context, *dbsqlc.Queries) error

// both returns the statements of first, then those of second. nil: none.
func both(first, second statements) statements {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, q *dbsqlc.Queries) error { return errors.Join(first(ctx, q), second(ctx, q)) }
}

// change returns the change for an entry without its earlier ones. It fails if the state of the turn's calls does not
// allow the entry.
func (w *Writer) change(at step, e turnlog.Entry, ending turnlog.Consequence) (*change, error) {
	calls, err := w.calls.with(e, w.clean)
	if err != nil {
		return nil, err
	}
	c := &change{grant: w.grant, write: at.id, seen: w.journal.Entries + at.after, events: w.store.stored(e.Events),
		results: calls.results, states: calls}
	c.totals = totals{executed: w.executed(calls, e), usage: usedBy(e)}
	if e.Round != nil {
		c.totals.rounds = 1
		if e.Round.Charged {
			c.totals.charged = 1
		}
		w.setRound(c, calls)
	}
	for _, s := range e.Starts {
		call := calls.call(s.Key)
		c.starts = append(c.starts, storedStart{
			Round: s.Key.Round, Ordinal: s.Key.Ordinal, Attempt: s.Attempt, Effect: orOnce(s.Effect), Nonce: s.Nonce,
			Agent: w.agent, Name: call.Name, ArgsHash: call.ArgsHash, Ask: int64(s.Ask), RunHash: s.Hash,
			RunArgs: w.clean(s.RunArgs),
		})
	}
	var answered proofs
	if !notesModels(e) {
		answered = proofsOf(e, w.grant.TurnID)
	}
	if o := e.Outcome; o != nil {
		c.end = &end{Outcome: w.store.cleaned(*o), Consequence: ending, answered: answered}
		if o.Reply != "" {
			c.end.calls = dbrow.StoredReplyCalls(calls.rounds)
		}
		if o.Silent || faults(*o) || notesModels(e) {
			c.after = func(ctx context.Context, q *dbsqlc.Queries) error {
				return errors.Join(AddSilentReply(ctx, q, w.grant.TurnID, *o), w.queueHealth(ctx, q, e))
			}
		}
	} else {
		c.answered = answered
		if notesModels(e) {
			c.after = func(ctx context.Context, q *dbsqlc.Queries) error { return w.queueHealth(ctx, q, e) }
		}
	}
	w.setBefore(c, e)
	return c, nil
}

// setBefore sets the statements that a change needs before its end, if any.
func (w *Writer) setBefore(c *change, e turnlog.Entry) {
	parts, labels, calls := w.store.parts.unknown(e.Parts), e.LabelRows(w.grant.TurnID), c.states
	if len(e.Failed) == 0 && len(parts) == 0 && e.Summary == nil && len(calls.released) == 0 &&
		!hasOutputs(e.Results) &&
		!anyAwaited(e.Starts) && !hasAsks(e) && len(labels) == 0 {
		return
	}
	c.parts = parts
	c.before = func(ctx context.Context, q *dbsqlc.Queries) error {
		return errors.Join(
			w.queueAsks(ctx, q, e),
			w.queueFailed(ctx, q, e.Failed),
			w.queueParts(ctx, q, parts),
			w.queueSummary(ctx, q, e.Summary),
			w.queueDetached(ctx, q, calls, e.Starts),
			w.queueSpawns(ctx, q, e.Starts),
			w.store.queueOutputs(ctx, q, w.grant, e.Results),
			queueLabels(ctx, q, w.clean, labels),
			w.queueReleased(ctx, q, calls.released),
		)
	}
}

// setRound sets the answer of a change: the newest of the rounds.
func (w *Writer) setRound(c *change, calls callStates) {
	r := calls.rounds[len(calls.rounds)-1]
	stored := storedRound{
		Number: int32(r.Number), //nolint:gosec // at most 20
		Text:   w.clean(r.Text), Reasoning: w.clean(r.Reasoning), Calls: plannedJSON(calls.planned),
	}
	stored.Answer = encode(storedAnswer{
		Version: journalVersion, Charged: r.Charged, Provider: w.clean(r.Provider), Model: w.clean(r.Model),
		Attempts:  r.Attempts,
		LatencyMS: max(r.Latency.Milliseconds(), 0), FinishReason: w.clean(r.FinishReason),
		storedUsage: usageOf(r.Usage),
	})
	if len(r.Raw) > 0 {
		raw := w.clean(string(r.Raw))
		stored.Raw = &raw
	}
	if r.Recipe != nil {
		stored.Request = []byte(recipeJSON(w.cleanRecipe(*r.Recipe)))
	}
	c.answers = []storedRound{stored}
}

// anyAwaited reports whether a start is of a detached call or a sub-agent.
func anyAwaited(starts []turnlog.CallStart) bool {
	return slices.ContainsFunc(starts, func(s turnlog.CallStart) bool { return s.Detached > 0 || s.Spawn != nil })
}

func hasOutputs(results []turnlog.CallResult) bool {
	for range storedWith(results) {
		return true
	}
	return false
}

func (w *Writer) queueReleased(ctx context.Context, q *dbsqlc.Queries, released []turnkeeper.CallKey) error {
	if len(released) == 0 {
		return nil
	}
	var rounds, ordinals []int32
	for _, k := range released {
		rounds, ordinals = append(rounds, int32(k.Round)), append(ordinals, int32(k.Ordinal)) //nolint:gosec // few
	}
	return q.StopAwaiting(ctx, int64(w.grant.TurnID), rounds, ordinals)
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
func (w *Writer) executed(calls callStates, e turnlog.Entry) (n int64) {
	for _, start := range e.Starts {
		if start.Attempt == 1 && !calls.call(start.Key).Paging {
			n++
		}
	}
	for _, result := range e.Results {
		if result.Nonce == "" && ran(result.State) && !calls.call(result.Key).Paging {
			n++
		}
	}
	return n
}

// ran reports whether a call without a start on record has run.
func ran(s turnkeeper.CallState) bool {
	return s == turnkeeper.CallSucceeded || s == turnkeeper.CallFailed
}

func (w *Writer) queueFailed(ctx context.Context, q *dbsqlc.Queries, failed []turnlog.FailedAttempt) error {
	if len(failed) == 0 {
		return nil
	}
	p := dbsqlc.InsertFailedAttemptsParams{TurnID: int64(w.grant.TurnID)}
	for _, f := range failed {
		p.Rounds = append(p.Rounds, int32(f.Round))       //nolint:gosec // few
		p.Attempts = append(p.Attempts, int32(f.Attempt)) //nolint:gosec // few
		p.Providers, p.Models = append(p.Providers, w.clean(f.Provider)), append(p.Models, w.clean(f.Model))
		p.Classes, p.Errors = append(p.Classes, f.Class), append(p.Errors, w.clean(f.Error))
		p.Texts, p.Reasonings = append(p.Texts, w.clean(f.Text)), append(p.Reasonings, w.clean(f.Reasoning))
		p.Latencies = append(p.Latencies, max(f.Latency.Milliseconds(), 0))
		p.Inputs, p.Outputs = append(p.Inputs, f.Usage.InputTokens), append(p.Outputs, f.Usage.OutputTokens)
		p.Cacheds = append(p.Cacheds, f.Usage.CachedTokens)
		p.CacheWrites = append(p.CacheWrites, f.Usage.CacheWriteTokens)
		p.ReasoningTokens = append(p.ReasoningTokens, f.Usage.ReasoningTokens)
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
func (s *Store) queueOutputs(ctx context.Context, q *dbsqlc.Queries, grant turnkeeper.Grant,
	results []turnlog.CallResult) error {
	p := dbsqlc.InsertOutputsParams{TurnID: int64(grant.TurnID)}
	var large chunks
	var drafted []string
	for r, o := range storedWith(results) {
		text, bytes := s.db.Clean(o.Text), o.Bytes
		inChunks := o.Drafted || max(len(text), len(bytes)) > outputs.ChunkBytes
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

// AddSilentReply inserts the reply of a turn that has just ended with a Silent outcome. Its body is empty.
func AddSilentReply(ctx context.Context, q *dbsqlc.Queries, turn turnkeeper.TurnID, o turnlog.Outcome) error {
	if !o.Silent {
		return nil
	}
	return q.InsertSilentReply(ctx, int64(turn))
}

// notesModels reports whether an entry needs its own statement for models' health. Otherwise the fence writes it, or
// the end of a turn that has not failed.
func notesModels(e turnlog.Entry) bool {
	return len(e.ModelFailures) > 0 || e.Outcome != nil && faults(*e.Outcome) && len(e.Answered)+len(e.Probed)+
		len(e.Refused) > 0
}

// faults reports whether a dispatch ends with a failure that NoteFault records.
func faults(o turnlog.Outcome) bool {
	return o.State == turnkeeper.TurnFailed || o.State == turnkeeper.TurnWaiting && len(o.WaitsFor) > 0
}

// queueHealth queues the updates of models' health, and of the message, the lane and the turn that
// failed. It must come after the lane's lease: see the function note_models.
func (w *Writer) queueHealth(ctx context.Context, q *dbsqlc.Queries, e turnlog.Entry) error {
	if o := e.Outcome; o != nil && faults(*o) {
		if err := q.NoteFault(ctx, dbrow.OrEmpty(o.WaitsFor), int64(w.grant.TurnID), o.Counted); err != nil {
			return err
		}
	}
	if !notesModels(e) {
		return nil
	}
	answered := proofsOf(e, w.grant.TurnID)
	p := dbsqlc.NoteModelsParams{
		Turn: int64(w.grant.TurnID), Answered: answered.models, Proofs: answered.proofs,
		Failed: []string{}, Seen: []int32{}, Classes: []string{}, Errors: []string{}, Asked: []time.Duration{},
		Requests: []int32{},
	}
	for _, f := range e.ModelFailures {
		p.Failed = append(p.Failed, f.Model)
		p.Seen = append(p.Seen, int32(f.Seen)) //nolint:gosec // few
		p.Classes = append(p.Classes, w.clean(f.ErrorClass))
		p.Errors = append(p.Errors, w.clean(f.Error))
		p.Asked = append(p.Asked, f.RetryAfter)
		p.Requests = append(p.Requests, int32(f.Requests)) //nolint:gosec // few
	}
	return q.NoteModels(ctx, p)
}
