package journal

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// send writes changes of different turns in one transaction: one statement appends all journal rows, another ends all
// turns that end. It calls sent after it has sent the transaction, before the answer arrives. It returns the error of
// each refused change. With alone, there is only one change, and err is its refusal. After any other err, nothing was
// written, or it is unknown whether it was.
func send(ctx context.Context, to pg.Sender, changes []*change, alone bool,
	sent func()) (refused map[*change]error, err error) {
	slices.SortFunc(changes, func(a, b *change) int { return cmp.Compare(a.grant.TurnID, b.grant.TurnID) })
	p := &pg.Pipeline{}
	refused = map[*change]error{}
	params := appendParams(changes, alone)
	queue := func(q *dbsqlc.Queries) error {
		found, err := q.AppendMany(ctx, params)
		for _, r := range found {
			c := changes[r.Write-1]
			refused[c] = pg.Refusal(r.Code, r.Message)
			if r.Code == "" {
				refused[c] = errAlone
			}
		}
		return err
	}
	errs := []error{p.Rows(queue)}
	for _, c := range changes {
		if c.before != nil {
			errs = append(errs, c.before(ctx, p.Queries()))
		}
	}
	if ends := endParams(changes); len(ends.Turns) > 0 {
		errs = append(errs, p.Queries().EndMany(ctx, ends))
	}
	for _, c := range changes {
		if c.after != nil {
			errs = append(errs, c.after(ctx, p.Queries()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return refused, p.Send(ctx, to, sent)
}

// appendParams returns the arguments of append_many. A change that needs other statements too is never refused by
// itself.
func appendParams(changes []*change, alone bool) dbsqlc.AppendManyParams {
	p := dbsqlc.AppendManyParams{
		Alone: alone, LockWait: pg.Millis(lockWait), Types: []string{}, EventRounds: []int32{}, Blocks: []int32{},
		Data: []string{}, Answered: []string{}, Proofs: []int64{},
	}
	for _, c := range changes {
		addWrite(&p, c)
		addTotals(&p, c.totals)
		addEvents(&p, c.events)
		addAnswer(&p, c)
		p.Starts = append(p.Starts, encoded(c.starts))
		p.Answered, p.Proofs = append(p.Answered, c.answered.models...), append(p.Proofs, c.answered.proofs...)
	}
	return p
}

func addWrite(p *dbsqlc.AppendManyParams, c *change) {
	p.Ids, p.Turns = append(p.Ids, c.write), append(p.Turns, int64(c.grant.TurnID))
	p.Tokens, p.Grants = append(p.Tokens, c.grant.Token), append(p.Grants, string(c.grant.GrantID))
	p.Workers, p.Seen = append(p.Workers, string(c.grant.WorkerID)), append(p.Seen, c.seen)
	p.Needed = append(p.Needed, c.before != nil || c.after != nil)
}

func addTotals(p *dbsqlc.AppendManyParams, t totals) {
	p.InferenceRounds, p.ChargedRounds = append(p.InferenceRounds, t.rounds), append(p.ChargedRounds, t.charged)
	p.ExecutedCalls = append(p.ExecutedCalls, t.executed)
	p.InputTokens, p.OutputTokens = append(p.InputTokens, t.usage.InputTokens), append(p.OutputTokens,
		t.usage.OutputTokens)
	p.CachedTokens, p.CacheWriteTokens = append(p.CachedTokens, t.usage.CachedTokens), append(p.CacheWriteTokens,
		t.usage.CacheWriteTokens)
	p.ReasoningTokens = append(p.ReasoningTokens, t.usage.ReasoningTokens)
	p.UsageEstimated = append(p.UsageEstimated, t.usage.Estimated)
}

func addEvents(p *dbsqlc.AppendManyParams, e storedEvents) {
	before := int32(len(p.Types)) //nolint:gosec // few
	p.FirstEvents = append(p.FirstEvents, before+1)
	p.LastEvents = append(p.LastEvents, before+int32(len(e.types))) //nolint:gosec // few
	p.Types, p.EventRounds = append(p.Types, e.types...), append(p.EventRounds, e.rounds...)
	p.Blocks, p.Data = append(p.Blocks, e.blocks...), append(p.Data, e.data...)
}

// addAnswer adds what the model has answered, and the results of calls.
func addAnswer(p *dbsqlc.AppendManyParams, c *change) {
	r, earlier := c.newest()
	p.Rounds, p.Answers, p.Calls = append(p.Rounds, r.Number), append(p.Answers, string(r.Answer)),
		append(p.Calls, string(r.Calls))
	p.Texts, p.Reasonings = append(p.Texts, r.Text), append(p.Reasonings, r.Reasoning)
	p.Raws, p.Requests = append(p.Raws, dbrow.OrZero(r.Raw)), append(p.Requests, string(r.Request))
	p.Earlier, p.Results = append(p.Earlier, encoded(earlier)), append(p.Results, encoded(c.results))
}

// newest returns the newest answer of a change, or zero, and the others.
func (c *change) newest() (newest storedRound, earlier []storedRound) {
	if n := len(c.answers); n > 0 {
		return c.answers[n-1], c.answers[:n-1]
	}
	return newest, nil
}

// encoded encodes a list for storage; empty: none.
func encoded[T any](list []T) string {
	if len(list) == 0 {
		return ""
	}
	return string(encode(list))
}

// endParams returns the arguments of end_many.
func endParams(changes []*change) (p dbsqlc.EndManyParams) {
	for _, c := range changes {
		e := c.end
		if e == nil {
			continue
		}
		p.Turns, p.Writes, p.Grants = append(p.Turns, int64(c.grant.TurnID)), append(p.Writes, c.write),
			append(p.Grants, string(c.grant.GrantID))
		p.States, p.Logs, p.Stops = append(p.States, string(e.State)), append(p.Logs, e.Log),
			append(p.Stops, string(e.StopReason))
		p.Replies, p.Calls, p.InnerDialogues = append(p.Replies, e.Reply), append(p.Calls, e.calls),
			append(p.InnerDialogues, e.InnerDialogue)
		p.ErrorClasses, p.Errors = append(p.ErrorClasses, e.ErrorClass), append(p.Errors, e.Error)
		p.MessageStates, p.Lost = append(p.MessageStates, string(e.Message)), append(p.Lost, e.Lost)
		p.Backoffs, p.LaneBackoffs = append(p.Backoffs, e.Backoff), append(p.LaneBackoffs, e.LaneBackoff)
		p.Jobs = append(p.Jobs, int64(c.grant.JobID))
		p.Answered, p.Proofs = append(p.Answered, e.answered.models...), append(p.Proofs, e.answered.proofs...)
	}
	return p
}

// EndOne ends the dispatch of a turn without a worker. The caller has locked the turn's row.
func (s *Store) EndOne(ctx context.Context, q *dbsqlc.Queries, turn turnkeeper.TurnID, grant turnkeeper.GrantID,
	o turnlog.Outcome, e turnlog.Consequence) error {
	p := endParams([]*change{{grant: turnkeeper.Grant{TurnID: turn, GrantID: grant},
		end: &end{Outcome: s.cleaned(o), Consequence: e}}})
	p.Writes = nil
	if err := q.EndMany(ctx, p); err != nil {
		return err
	}
	return AddSilentReply(ctx, q, turn, o)
}

// cleaned returns an outcome with its text as stored.
func (s *Store) cleaned(o turnlog.Outcome) turnlog.Outcome {
	o.Reply, o.InnerDialogue, o.ErrorClass, o.Error = s.db.Clean(o.Reply), s.db.Clean(o.InnerDialogue),
		s.db.Clean(o.ErrorClass), s.db.Clean(o.Error)
	return o
}
