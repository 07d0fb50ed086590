package journal_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// A step is one write of a turn.
type step struct {
	entry  turnlog.Entry
	ending turnlog.Consequence
}

// stepsOf returns three writes of the turn number i, of which no two turns write the same. id makes nonces unique.
func stepsOf(i int, id string) []step {
	tokens := func(n int64) turnkeeper.Usage {
		return turnkeeper.Usage{InputTokens: 10 * n, OutputTokens: 20 * n, CachedTokens: n, CacheWriteTokens: 3 * n,
			ReasoningTokens: 2 * n}
	}
	failed := func(attempt int) turnlog.FailedAttempt {
		return turnlog.FailedAttempt{
			Round: 1, Attempt: attempt, Provider: fmt.Sprint("p", i), Model: fmt.Sprint("m", i), Class: "transport",
			Error: fmt.Sprint("no ", i),
			Text:  fmt.Sprint("some ", attempt), Reasoning: fmt.Sprint("why ", i),
			Latency: time.Duration(i+1) * time.Second, Usage: tokens(int64(attempt)),
		}
	}
	effects := [][]turnkeeper.Effect{
		{turnkeeper.EffectOnce, turnkeeper.EffectNone}, {turnkeeper.EffectKeyed},
		{turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce}, {turnkeeper.EffectOnce,
			turnkeeper.EffectOnce, turnkeeper.EffectNone},
	}
	round := storagetest.Round(1, effects[i%4]...)
	round.Text, round.Reasoning, round.Raw = fmt.Sprint("text ", i), fmt.Sprint("reason ", i),
		fmt.Appendf(nil, `{"raw":%d}`, i)
	round.Usage, round.Latency = tokens(int64(100+i)), time.Duration(i)*time.Millisecond
	for k := range round.Calls {
		round.Calls[k].Arguments, round.Calls[k].Name = fmt.Sprintf(`{"turn":%d,"call":%d}`, i, k),
			fmt.Sprintf("tool_%d_%d", i, k)
	}
	first := turnlog.Entry{Round: round, Events: storagetest.Events(turnkeeper.EventTurnStart,
		turnkeeper.EventRoundStart)[:1+i%2]}
	for n := range i % 3 {
		first.Failed = append(first.Failed, failed(n+1))
	}

	var second turnlog.Entry
	for k := range round.Calls {
		key := storagetest.Key(1, k+1)
		if (i+k)%2 == 0 || round.Calls[k].Effect != turnkeeper.EffectNone {
			start := storagetest.Start(key, fmt.Sprintf("%s %d %d", id, i, k), 1, round.Calls[k].Effect)
			if k == 1 {
				start.RunArgs, start.ArgsHash = fmt.Sprintf(`{"run":%d}`, i), fmt.Sprint("hash ", i)
			}
			second.Starts = append(second.Starts, start)
		}
		event := storagetest.Events(turnkeeper.EventToolStarted)[0]
		event.Round, event.Block, event.Data = k+1, 10*i+k, fmt.Appendf(nil, `{"n":"%d %d"}`, i, k)
		second.Events = append(second.Events, event)
	}
	third := turnlog.Entry{Events: storagetest.Events(turnkeeper.EventNotice)}
	for _, s := range second.Starts {
		r := storagetest.Result(s.Key, s.Nonce, turnkeeper.CallSucceeded, fmt.Sprint("shown ", i, s.Key))
		r.Duration, r.Usage = time.Duration(i+1)*time.Millisecond, tokens(int64(i))
		third.Results = append(third.Results, r)
	}
	outcome, ending := endOf(i)
	third.Outcome = &outcome
	return []step{{first, turnlog.Consequence{}}, {second, turnlog.Consequence{}}, {third, ending}}
}

// endOf returns the end of a dispatch of the turn number i: each kind of end in turn.
func endOf(i int) (turnlog.Outcome, turnlog.Consequence) {
	o := turnlog.Outcome{InnerDialogue: fmt.Sprint("inner ", i), Error: fmt.Sprint("error ", i),
		ErrorClass: fmt.Sprint("class ", i)}
	back := time.Duration(i+1) * time.Hour
	switch i % 4 {
	case 0:
		o.State, o.StopReason, o.Reply = turnkeeper.TurnDegraded, turnkeeper.StopInferenceError, fmt.Sprint("reply ", i)
		return o, turnlog.Consequence{Message: turnkeeper.MessageDegraded, Log: "finished"}
	case 1:
		o.State, o.Backoff = turnkeeper.TurnQueued, back
		return o, turnlog.Consequence{Log: "deferred"}
	case 2:
		o.State, o.StopReason, o.Reply = turnkeeper.TurnFailed, turnkeeper.StopInferenceError, fmt.Sprint("reply ", i)
		return o, turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished", LaneBackoff: back}
	default:
		o.State, o.StopReason, o.Retry, o.Backoff, o.Counted = turnkeeper.TurnFailed, turnkeeper.StopInferenceError,
			true, 2*back, true
		return o, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: back}
	}
}

// tablesOf returns what the tables hold of a turn, without ids, and times as their distance to the last write. own is
// the part of its nonces that other turns do not have.
func (h *env) tablesOf(d *storagetest.Dispatch, own string) string {
	const tables = `with last as (select max(at) as at, max(n) as n from turnkeeper.journal where turn_id = $1)
		select string_agg(name || ' ' || (
			select string_agg(key || '=' || case when value ~ '^\d{4}-\d\d-\d\dT'
				then round(extract(epoch from value::timestamptz - (select at from last)) / 60)::text || ' min'
				else value end, ' ' order by key)
			from jsonb_each_text(row) where key not in ('id', 'turn_id', 'message_id', 'write_id', 'grant_id', 'job_id', 'lane', 'conversation',
					'idempotency_key', 'token', 'ended_id')
				and value is not null and key not in ('at', 'due_at', 'accepted_at', 'granted_at', 'lease_until', 'created_at', 'rank')
				or key = 'due_at' and name in ('turn', 'message') and value::timestamptz > now()), e'\n' order by name, n)
		from (select 'journal' as name, n, to_jsonb(j) as row from turnkeeper.journal j where turn_id = $1
			union all select 'turn', 0, to_jsonb(t) from turnkeeper.turns t where id = $1
			union all select 'message', 0, to_jsonb(m) from turnkeeper.messages m where id = $2
			union all select 'reply', 0, to_jsonb(r) from turnkeeper.replies r where turn_id = $1
			union all select 'grant', 0, to_jsonb(g) from turnkeeper.lease_log g where turn_id = $1
			union all select 'lane', 0, to_jsonb(l) from turnkeeper.leases l where lane = $3) as rows`
	text := storagetest.One[string](h, tables, d.Grant.TurnID, d.Record.Message.ID, d.Grant.Lane)
	return strings.ReplaceAll(text, own, "nonce")
}

// TestABatchWritesWhatSingleWritesWrite lets eight turns do the same writes in batches as eight others do alone. The
// tables then hold the same of both, so that no turn's texts, counts, pauses or end become those of another.
func TestABatchWritesWhatSingleWritesWrite(t *testing.T) {
	h := newEnv(t)
	const n = 8
	all := manyTurns(h, 2*n)
	b := &batch{env: h, turns: all[:n]}
	for k := range 3 {
		b.writeSteps(t, func(i int) step { return stepsOf(i, "batched")[k] })
		for i, d := range all[n:] {
			s := stepsOf(i, "single")[k]
			if err := d.Append(t.Context(), s.entry, s.ending); err != nil {
				t.Fatalf("write %d of turn %d: %v", k, i, err)
			}
		}
	}
	seen := map[string]bool{}
	for i := range n {
		batched, single := h.tablesOf(all[i], "batched"), h.tablesOf(all[n+i], "single")
		if diff := gocmp.Diff(strings.Split(single, "\n"), strings.Split(batched, "\n")); diff != "" {
			t.Errorf("turn %d (-alone +in a batch):\n%s", i, diff)
		}
		if o, _ := endOf(i); !strings.Contains(batched, o.Error) || !strings.Contains(batched,
			cmp.Or(o.Reply, o.Error)) || seen[batched] {
			t.Errorf("turn %d has not its own end:\n%s", i, batched)
		}
		seen[batched] = true
	}
}

// writeSteps lets each turn do a write, all in one batch.
func (b *batch) writeSteps(t *testing.T, of func(i int) step) {
	t.Helper()
	waiting, release := b.HoldGroup()
	b.results = nil
	for i, d := range b.turns {
		result, s := make(chan error, 1), of(i)
		b.results = append(b.results, result)
		go func() { result <- d.Append(t.Context(), s.entry, s.ending) }()
	}
	awaitWaiting(t, waiting, len(b.turns))
	release()
	for i := range b.turns {
		if err := b.result(i); err != nil {
			t.Fatalf("write of turn %d: %v", i, err)
		}
	}
}
