package storage_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage"
)

// rows are all rows that tell of turns, by what they are: "call 7 1.2" is call 1.2 of turn 7.
func (h *house) rows() map[string]string {
	h.t.Helper()
	rows, _ := h.Pool().Query(h.t.Context(), `
		select 'turn ' || id, to_jsonb(t)::text from turnkeeper.turns t
		union all select 'message ' || id, to_jsonb(t)::text from turnkeeper.messages t
		union all select 'lane ' || lane, to_jsonb(t)::text from turnkeeper.leases t
		union all select 'grant ' || turn_id || ' ' || grant_id, to_jsonb(t)::text from turnkeeper.lease_log t
		union all select 'reply ' || turn_id, to_jsonb(t)::text from turnkeeper.replies t
		union all select 'round ' || turn_id || ' ' || round, to_jsonb(t)::text from turnkeeper.rounds t
		union all select format('call %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.calls t
		union all select format('start %s %s.%s #%s', turn_id, round, ordinal, attempt), to_jsonb(t)::text from turnkeeper.call_starts t
		union all select format('event %s %s', turn_id, seq), to_jsonb(t)::text from turnkeeper.turn_events t
		union all select format('output %s %s', turn_id, id), to_jsonb(t)::text from turnkeeper.outputs t
		union all select format('awaited %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.awaited_calls t
		union all select format('detached %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.detached_calls t
		union all select format('spawned %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.spawned_calls t
		union all select 'tree ' || root, to_jsonb(t)::text from turnkeeper.agent_trees t
		union all select 'cancellation ' || turn_id, to_jsonb(t)::text from turnkeeper.cancellations t
		union all select 'job ' || id, to_jsonb(t)::text from turnkeeper.river_job t`)
	all := map[string]string{}
	var name, row string
	if _, err := pgx.ForEachRow(rows, []any{&name, &row}, func() error { all[name] = row; return nil }); err != nil {
		h.t.Fatal(err)
	}
	return all
}

// changed are the names of the rows that are not the same.
func changed(before, after map[string]string) (names []string) {
	for name, row := range after {
		if before[name] != row {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			names = append(names, name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// A scene is a turn of the desk before something is done to it. Beside it stands its twin, to which
// nothing is done.
type scene struct {
	*house
	*dispatch
}

// calls gives a turn two rounds of two calls, the first of which is started in each.
func (s scene) calls() {
	for n := 1; n <= 2; n++ {
		s.append(s.t, turnkeeper.Entry{
			Round: round(n, turnkeeper.EffectOnce, turnkeeper.EffectOnce), Events: events(turnkeeper.EventRoundStart),
			Starts: []turnkeeper.CallStart{start(key(n, 1), s.nonce(n, 1), 1, turnkeeper.EffectOnce)},
		})
	}
}

func (s scene) nonce(round, ordinal int) string {
	return fmt.Sprintf("n-%d-%d.%d", s.grant.TurnID, round, ordinal)
}

// plans gives a turn two rounds of two calls that may run elsewhere, none of which is started.
func (s scene) plans() {
	for n := 1; n <= 2; n++ {
		s.append(s.t, turnkeeper.Entry{Round: round(n, turnkeeper.EffectKeyed, turnkeeper.EffectKeyed)})
	}
}

// detach starts a planned call elsewhere.
func (s scene) detach(k turnkeeper.CallKey) {
	s.t.Helper()
	begun := start(k, s.nonce(k.Round, k.Ordinal), 1, turnkeeper.EffectKeyed)
	begun.Detached = time.Hour
	running := result(k, begun.Nonce, turnkeeper.CallRunning, "handle")
	running.OutputID = turnkeeper.OutputID(begun.Nonce)
	s.append(s.t, turnkeeper.Entry{Starts: []turnkeeper.CallStart{begun}, Results: []turnkeeper.CallResult{running}})
}

// open gives the turn two rounds with two detached calls each, and makes the turn wait for them.
func (s scene) open() {
	s.openRunning()
	s.wait(s.t)
}

func (s scene) openRunning() {
	for n := 1; n <= 2; n++ {
		e := turnkeeper.Entry{Round: round(n, turnkeeper.EffectKeyed, turnkeeper.EffectKeyed)}
		for o := 1; o <= 2; o++ {
			begun := start(key(n, o), s.nonce(n, o), 1, turnkeeper.EffectKeyed)
			begun.Detached = time.Hour
			e.Starts = append(e.Starts, begun)
			running := result(key(n, o), s.nonce(n, o), turnkeeper.CallRunning, "handle")
			running.OutputID = turnkeeper.OutputID(s.nonce(n, o))
			e.Results = append(e.Results, running)
		}
		s.append(s.t, e)
	}
}

func (s scene) ref() turnkeeper.CallRef {
	return turnkeeper.CallRef{TurnID: s.grant.TurnID, Key: key(1, 1), Attempt: 1}
}

func (s scene) claim(worker turnkeeper.WorkerID) turnkeeper.ClaimedCall {
	s.t.Helper()
	return s.claimOf(key(1, 1), worker)
}

func (s scene) claimOf(k turnkeeper.CallKey, worker turnkeeper.WorkerID) turnkeeper.ClaimedCall {
	s.t.Helper()
	c, err := s.Claim(s.t.Context(), turnkeeper.CallRef{TurnID: s.grant.TurnID, Key: k, Attempt: 1}, worker, []string{"tool"})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// lostCall has the first call's run count as lost.
func (s scene) lostCall(ctx context.Context, tick *storage.Tick) turnkeeper.LostCall {
	s.t.Helper()
	lost, err := tick.LostCalls(ctx, 100)
	if err != nil || len(lost) != 1 || lost[0].Ref != s.ref() {
		s.t.Fatalf("lost are %+v, error %v", lost, err)
	}
	return lost[0]
}

// TestNothingHappensToBystanders does each thing to a turn beside others that are just like it, and
// looks at every row.
func TestNothingHappensToBystanders(t *testing.T) {
	testrun.Guard(t)
	nothing := func(scene) {}
	for _, c := range []struct {
		name   string
		before func(scene) // done to the twin as well
		first  func(scene) // done to the turn alone
		do     func(scene)
		want   string
	}{
		{"a round", scene.calls, nothing, func(s scene) { s.append(s.t, turnkeeper.Entry{Round: round(3)}) }, "round 3, turn"},
		{"a start", scene.calls, nothing, func(s scene) {
			s.append(s.t, turnkeeper.Entry{Starts: []turnkeeper.CallStart{start(key(1, 2), s.nonce(1, 2), 1, turnkeeper.EffectOnce)}})
		}, "call 1.2, start 1.2 #1, turn"},
		{"an answer", scene.calls, nothing, func(s scene) {
			s.append(s.t, turnkeeper.Entry{Results: []turnkeeper.CallResult{result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "ok")}})
		}, "call 1.1, turn"},
		{"an answer with usage", scene.calls, nothing, func(s scene) {
			r := result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "ok")
			r.Usage = turnkeeper.Usage{InputTokens: 5}
			s.append(s.t, turnkeeper.Entry{Results: []turnkeeper.CallResult{r}})
		}, "call 1.1, turn"},
		{"the end", scene.calls, nothing, func(s scene) { s.finish(s.t, "done") }, "grant, job, lane, message, reply, turn"},
		{"a hand-back", scene.calls, nothing, func(s scene) {
			s.must(s.Append(s.t.Context(), turnkeeper.Entry{Outcome: &turnkeeper.Outcome{State: turnkeeper.TurnQueued}}, storage.Ending{Log: "handed_back"}))
		}, "grant, job, lane, turn"},
		{"a late result", scene.calls, func(s scene) { s.lose(s.dispatch) }, func(s scene) {
			s.must(s.Late(s.t.Context(), result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "late")))
		}, "call 1.1"},
		{"a late result after a verdict", scene.calls, func(s scene) {
			s.append(s.t, turnkeeper.Entry{Verdicts: []turnkeeper.CallResult{{Key: key(1, 1), State: turnkeeper.CallUnknown, Shown: "?"}}})
		}, func(s scene) {
			s.must(s.Late(s.t.Context(), result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "late")))
		}, "call 1.1"},
		{"a loss", scene.calls, nothing, func(s scene) { s.lose(s.dispatch) }, "grant, job, lane, turn"},
		{"the request to cancel", scene.calls, nothing, func(s scene) {
			_, err := s.CancelTurn(s.t.Context(), s.grant.TurnID, "enough")
			s.must(err)
		}, "cancellation"},
		{"a cancelled queued turn", scene.calls, func(s scene) { s.lose(s.dispatch) }, func(s scene) {
			_, err := s.CancelTurn(s.t.Context(), s.grant.TurnID, "enough")
			s.must(err)
		}, "call 1.1, call 1.2, call 2.1, call 2.2, cancellation, event 3, message, reply, turn"},
		{"a cancelled waiting turn", scene.open, nothing, func(s scene) {
			_, err := s.CancelTurn(s.t.Context(), s.grant.TurnID, "enough")
			s.must(err)
		}, "awaited 1.1, awaited 1.2, awaited 2.1, awaited 2.2, call 1.1, call 1.2, call 2.1, call 2.2, cancellation, " +
			"detached 1.1, detached 1.2, detached 2.1, detached 2.2, event 2, job 1.1, job 1.2, job 2.1, job 2.2, message, reply, turn"},
		{"a start elsewhere", scene.plans, nothing, func(s scene) { s.detach(key(1, 1)) }, "awaited 1.1, call 1.1, detached 1.1, job 1.1, start 1.1 #1, turn"},
		{"work given to an agent", scene.plans, nothing, func(s scene) { s.spawn(key(1, 1), "clerk", "look it up") },
			"awaited 1.1, call 1.1, message 4 of another, spawned 1.1, start 1.1 #1, tree, turn"},
		{"a claim", scene.open, nothing, func(s scene) { s.claim("w") }, "detached 1.1"},
		{"an answer of an open call", scene.openRunning, nothing, func(s scene) {
			s.append(s.t, turnkeeper.Entry{Results: []turnkeeper.CallResult{result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "ok")}})
		}, "awaited 1.1, call 1.1, detached 1.1, job 1.1, turn"},
		{"an arrival", scene.open, func(s scene) { s.claim("w") }, func(s scene) {
			s.must(s.Arrive(s.t.Context(), s.claimed(), result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "ok")))
		}, "awaited 1.1, detached 1.1, job 1.1, turn"},
		{"an arrival, where all starts have one nonce", scene.open, func(s scene) {
			s.claim("w")
			s.exec("update turnkeeper.awaited_calls set nonce = 'n'")
		}, func(s scene) {
			s.must(s.Arrive(s.t.Context(), s.claimed(), result(key(1, 1), "n", turnkeeper.CallSucceeded, "ok")))
		}, "awaited 1.1, detached 1.1, job 1.1, turn"},
		{"a claim handed on", scene.open, func(s scene) { s.claim("w") }, func(s scene) {
			s.must(s.HandOn(s.t.Context(), s.claimed()))
		}, "awaited 1.1, call 1.1, detached 1.1, job 1.1, job 1.1, start 1.1 #2"},
		{"a claim given up", scene.open, func(s scene) { s.claim("w") }, func(s scene) {
			_, err := s.GiveBackCalls(s.t.Context(), "w", 0, nil, nil)
			s.must(err)
		}, "detached 1.1"},
		{"a run that never began, rung for again", scene.open, func(s scene) {
			s.beat("gone", 1, 15*time.Second)
			s.must(s.StopBeating(s.t.Context(), "gone"))
			s.fetchJob(one[turnkeeper.JobID](s.house, "select job_id from turnkeeper.detached_calls"+ofCall, s.grant.TurnID), "gone")
		}, func(s scene) {
			s.inTick(func(ctx context.Context, tick *storage.Tick) error { return tick.RunAgain(ctx, s.lostCall(ctx, tick)) })
		}, "detached 1.1, job 1.1, job 1.1"},
		{"a lost run again", scene.open, scene.giveUp, func(s scene) {
			s.inTick(func(ctx context.Context, tick *storage.Tick) error { return tick.RunAgain(ctx, s.lostCall(ctx, tick)) })
		}, "awaited 1.1, call 1.1, detached 1.1, job 1.1, job 1.1, start 1.1 #2"},
		{"a lost run ended", scene.open, scene.giveUp, func(s scene) {
			s.inTick(func(ctx context.Context, tick *storage.Tick) error {
				return tick.EndCall(ctx, s.lostCall(ctx, tick), turnkeeper.CallResult{Key: key(1, 1), State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
			})
		}, "awaited 1.1, detached 1.1, job 1.1, turn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.t = t
			for _, conversation := range []string{"before", "it", "after"} {
				h.enqueue("desk", conversation, "x")
			}
			var it scene
			for i, d := range h.dispatch("worker-1") {
				s := scene{h, d}
				c.before(s)
				if i == 1 {
					it = s
				}
			}
			c.first(it)
			rows := h.rows()
			c.do(it)
			var got []string
			for _, name := range changed(rows, h.rows()) {
				got = append(got, it.short(name))
			}
			slices.Sort(got)
			if diff := cmp.Diff(strings.Split(c.want, ", "), got); diff != "" {
				t.Errorf("rows changed (-want +got):\n%s", diff)
			}
		})
	}
}

func (s scene) giveUp() {
	s.claim("w")
	_, err := s.GiveBackCalls(s.t.Context(), "w", 0, nil, nil)
	s.must(err)
}

// claimed is the claim that is on record.
func (s scene) claimed() turnkeeper.ClaimedCall {
	claim := one[string](s.house, "select claim from turnkeeper.detached_calls where claim is not null")
	return turnkeeper.ClaimedCall{Ref: s.ref(), Claim: turnkeeper.ClaimID(claim), Call: s.call(s.grant.TurnID, key(1, 1))}
}

// short is what a row of the turn's own is called without the turn; rows of others keep their names.
func (s scene) short(name string) string {
	kind, rest, _ := strings.Cut(name, " ")
	own, part, _ := strings.Cut(rest, " ")
	switch {
	case kind == "lane" && rest == string(s.grant.Lane), kind == "message" && own == fmt.Sprint(s.record.Turn.MessageID):
		return kind
	case kind == "job" && own == fmt.Sprint(s.grant.JobID):
		return kind
	case kind == "job":
		of := one[string](s.house, `select format('%s %s.%s', args ->> 'turn_id', args ->> 'round', args ->> 'ordinal') from turnkeeper.river_job where id = $1`, own)
		if call, ours := strings.CutPrefix(of, fmt.Sprint(s.grant.TurnID, " ")); ours {
			return "job " + call
		}
		return name + " of another"
	case kind != "lane" && kind != "message" && own == fmt.Sprint(s.grant.TurnID):
		if kind == "grant" || kind == "output" {
			return kind
		}
		return strings.TrimSpace(kind + " " + part)
	}
	return name + " of another"
}
