package journal_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// A scene is a turn of the desk that a test changes. Tests compare it with other turns that are set
// up in the same way and must not change.
type scene struct {
	*env
	*storagetest.Dispatch
}

// calls gives a turn two rounds of two calls each. The first call of each round is started.
func (s scene) calls() {
	for n := 1; n <= 2; n++ {
		s.Write(s.T, turnlog.Entry{
			Round:  storagetest.Round(n, turnkeeper.EffectOnce, turnkeeper.EffectOnce),
			Events: storagetest.Events(turnkeeper.EventRoundStart),
			Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(n, 1), s.nonce(n, 1), 1,
				turnkeeper.EffectOnce)},
		})
	}
}

func (s scene) nonce(round, ordinal int) string {
	return fmt.Sprintf("n-%d-%d.%d", s.Grant.TurnID, round, ordinal)
}

// plans gives a turn two rounds of two planned calls each, which may be detached.
func (s scene) plans() {
	for n := 1; n <= 2; n++ {
		s.Write(s.T, turnlog.Entry{Round: storagetest.Round(n, turnkeeper.EffectKeyed, turnkeeper.EffectKeyed)})
	}
}

// detach starts a planned call as a detached call.
func (s scene) detach(k turnkeeper.CallKey) {
	s.T.Helper()
	begun := storagetest.Start(k, s.nonce(k.Round, k.Ordinal), 1, turnkeeper.EffectKeyed)
	begun.Detached = time.Hour
	running := storagetest.Result(k, begun.Nonce, turnkeeper.CallRunning, "handle")
	running.OutputID = turnkeeper.OutputID(begun.Nonce)
	s.Write(s.T, turnlog.Entry{Starts: []turnlog.CallStart{begun}, Results: []turnlog.CallResult{running}})
}

// open gives the turn two rounds with two detached calls each, and makes the turn wait for them.
func (s scene) open() {
	s.openRunning()
	s.Wait(s.T)
}

func (s scene) openRunning() {
	for n := 1; n <= 2; n++ {
		e := turnlog.Entry{Round: storagetest.Round(n, turnkeeper.EffectKeyed, turnkeeper.EffectKeyed)}
		for o := 1; o <= 2; o++ {
			begun := storagetest.Start(storagetest.Key(n, o), s.nonce(n, o), 1, turnkeeper.EffectKeyed)
			begun.Detached = time.Hour
			e.Starts = append(e.Starts, begun)
			running := storagetest.Result(storagetest.Key(n, o), s.nonce(n, o), turnkeeper.CallRunning, "handle")
			running.OutputID = turnkeeper.OutputID(s.nonce(n, o))
			e.Results = append(e.Results, running)
		}
		s.Write(s.T, e)
	}
}

func (s scene) ref() turnlog.CallRef {
	return turnlog.CallRef{TurnID: s.Grant.TurnID, Key: storagetest.Key(1, 1), Attempt: 1}
}

func (s scene) claim(worker turnkeeper.WorkerID) turnlog.ClaimedCall {
	s.T.Helper()
	return s.claimOf(storagetest.Key(1, 1), worker)
}

func (s scene) claimOf(k turnkeeper.CallKey, worker turnkeeper.WorkerID) turnlog.ClaimedCall {
	s.T.Helper()
	c, err := s.Claim(s.T.Context(), turnlog.CallRef{TurnID: s.Grant.TurnID, Key: k, Attempt: 1}, worker,
		[]string{"tool"})
	if err != nil {
		s.T.Fatal(err)
	}
	return c
}

func (s scene) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// lostCall returns the first call, which must be the only lost call.
func (s scene) lostCall(ctx context.Context, tick *grants.Tick) granting.LostCall {
	s.T.Helper()
	lost, err := tick.LostCalls(ctx, 100)
	if err != nil || len(lost) != 1 || lost[0].Ref != s.ref() {
		s.T.Fatalf("lost are %+v, error %v", lost, err)
	}
	return lost[0]
}

// TestNothingHappensToBystanders checks which rows each operation on a turn changes. The database
// also has an older and a newer turn in the same state, which must not change.
func TestNothingHappensToBystanders(t *testing.T) {
	testrun.Guard(t)
	nothing := func(scene) {}
	for _, c := range []struct {
		name   string
		before func(scene) // setup of all turns
		first  func(scene) // setup of this turn only
		do     func(scene)
		want   string
	}{
		{"a round", scene.calls, nothing, func(s scene) {
			s.Write(s.T, turnlog.Entry{Round: storagetest.Round(3)})
		}, "round 3, turn"},
		{"a start", scene.calls, nothing, func(s scene) {
			s.Write(s.T, turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 2),
				s.nonce(1, 2), 1, turnkeeper.EffectOnce)}})
		}, "call 1.2, start 1.2 #1, turn"},
		{"an answer", scene.calls, nothing, func(s scene) {
			s.Write(s.T, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1),
				s.nonce(1, 1), turnkeeper.CallSucceeded, "ok")}})
		}, "call 1.1, turn"},
		{"an answer with usage", scene.calls, nothing, func(s scene) {
			r := storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "ok")
			r.Usage = turnkeeper.Usage{InputTokens: 5}
			s.Write(s.T, turnlog.Entry{Results: []turnlog.CallResult{r}})
		}, "call 1.1, turn"},
		{"the end", scene.calls, nothing, func(s scene) {
			s.Finish(s.T, "done")
		}, "grant, job, lane, message, reply, turn"},
		{"a hand-back", scene.calls, nothing, func(s scene) {
			s.must(s.Append(s.T.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued}},
				turnlog.Consequence{Log: "handed_back"}))
		}, "grant, job, lane, message, turn"},
		{"a late result", scene.calls, func(s scene) { s.Lose(s.Dispatch) }, func(s scene) {
			s.must(s.Late(s.T.Context(), storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1),
				turnkeeper.CallSucceeded, "late")))
		}, "call 1.1, turn"},
		{"a late result after a verdict", scene.calls, func(s scene) {
			s.Write(s.T, turnlog.Entry{Verdicts: []turnlog.CallResult{{Key: storagetest.Key(1, 1),
				State: turnkeeper.CallUnknown, Shown: "?"}}})
		}, func(s scene) {
			s.must(s.Late(s.T.Context(), storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1),
				turnkeeper.CallSucceeded, "late")))
		}, "call 1.1, late 1.1"},
		{"a loss", scene.calls, nothing, func(s scene) { s.Lose(s.Dispatch) }, "grant, job, lane, message, turn"},
		{"the request to cancel", scene.calls, nothing, func(s scene) {
			_, err := s.CancelTurn(s.T.Context(), s.Grant.TurnID, "enough")
			s.must(err)
		}, "cancellation"},
		{"a cancelled queued turn", scene.calls, func(s scene) { s.Lose(s.Dispatch) }, func(s scene) {
			_, err := s.CancelTurn(s.T.Context(), s.Grant.TurnID, "enough")
			s.must(err)
		}, "call 1.1, call 1.2, call 2.1, call 2.2, cancellation, event 3, message, reply, turn"},
		{"a cancelled waiting turn", scene.open, nothing, func(s scene) {
			_, err := s.CancelTurn(s.T.Context(), s.Grant.TurnID, "enough")
			s.must(err)
		},
			"awaited 1.1, awaited 1.2, awaited 2.1, awaited 2.2, call 1.1, call 1.2, call 2.1, call 2.2, cancellation, " +
				"detached 1.1, detached 1.2, detached 2.1, detached 2.2, event 2, job 1.1, job 1.2, job 2.1, job 2.2, message, reply, turn"},
		{"a detached start", scene.plans, nothing, func(s scene) {
			s.detach(storagetest.Key(1, 1))
		}, "awaited 1.1, call 1.1, detached 1.1, job 1.1, start 1.1 #1, turn"},
		{"work given to an agent", scene.plans, nothing, func(s scene) {
			s.spawn(storagetest.Key(1, 1), "clerk", "look it up")
		},
			"awaited 1.1, call 1.1, message 4 of another, spawned 1.1, start 1.1 #1, tree, turn"},
		{"a claim", scene.open, nothing, func(s scene) { s.claim("w") }, "detached 1.1"},
		{"an answer of an open call", scene.openRunning, nothing, func(s scene) {
			s.Write(s.T, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1),
				s.nonce(1, 1), turnkeeper.CallSucceeded, "ok")}})
		}, "awaited 1.1, call 1.1, detached 1.1, job 1.1, turn"},
		{"an arrival", scene.open, func(s scene) { s.claim("w") }, func(s scene) {
			s.must(s.Arrive(s.T.Context(), s.claimed(), storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1),
				turnkeeper.CallSucceeded, "ok")))
		}, "awaited 1.1, detached 1.1, job 1.1, turn"},
		{"an arrival, where all starts have one nonce", scene.open, func(s scene) {
			s.claim("w")
			s.Exec("update turnkeeper.awaited_calls set nonce = 'n'")
		}, func(s scene) {
			s.must(s.Arrive(s.T.Context(), s.claimed(), storagetest.Result(storagetest.Key(1, 1), "n",
				turnkeeper.CallSucceeded, "ok")))
		}, "awaited 1.1, detached 1.1, job 1.1, turn"},
		{"a claim handed on", scene.open, func(s scene) { s.claim("w") }, func(s scene) {
			s.must(s.Release(s.T.Context(), s.claimed()))
		}, "awaited 1.1, call 1.1, detached 1.1, job 1.1, job 1.1, start 1.1 #2"},
		{"a claim given up", scene.open, func(s scene) { s.claim("w") }, func(s scene) {
			_, err := s.GiveBackCalls(s.T.Context(), "w", 0, nil, nil)
			s.must(err)
		}, "detached 1.1"},
		{"a run that never began, rung for again", scene.open, func(s scene) {
			s.HeartBeat("gone", 1, 15*time.Second)
			s.must(s.StopBeating(s.T.Context(), "gone"))
			s.FetchJob(storagetest.One[turnkeeper.JobID](s.env, "select job_id from turnkeeper.detached_calls"+ofCall,
				s.Grant.TurnID), "gone")
		}, func(s scene) {
			s.Tick(func(ctx context.Context, tick *grants.Tick) error {
				return tick.RunAgain(ctx, s.lostCall(ctx, tick))
			})
		}, "detached 1.1, job 1.1, job 1.1"},
		{"a lost run again", scene.open, scene.giveUp, func(s scene) {
			s.Tick(func(ctx context.Context, tick *grants.Tick) error {
				return tick.RunAgain(ctx, s.lostCall(ctx, tick))
			})
		}, "awaited 1.1, call 1.1, detached 1.1, job 1.1, job 1.1, start 1.1 #2"},
		{"a lost run ended", scene.open, scene.giveUp, func(s scene) {
			s.Tick(func(ctx context.Context, tick *grants.Tick) error {
				return tick.EndCall(ctx, s.lostCall(ctx, tick), turnlog.CallResult{Key: storagetest.Key(1, 1),
					State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
			})
		}, "awaited 1.1, detached 1.1, job 1.1, turn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newEnv(t)
			h.T = t
			for _, conversation := range []string{"before", "it", "after"} {
				h.Submit("desk", conversation, "x")
			}
			var it scene
			for i, d := range h.Dispatch("worker-1") {
				s := scene{h, d}
				c.before(s)
				if i == 1 {
					it = s
				}
			}
			c.first(it)
			rows := h.Rows()
			c.do(it)
			var got []string
			for _, name := range storagetest.Changed(rows, h.Rows()) {
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
	_, err := s.GiveBackCalls(s.T.Context(), "w", 0, nil, nil)
	s.must(err)
}

// claimed returns the only claim that is on record.
func (s scene) claimed() turnlog.ClaimedCall {
	claim := storagetest.One[string](s.env, "select claim from turnkeeper.detached_calls where claim is not null")
	return turnlog.ClaimedCall{Ref: s.ref(), Claim: turnlog.ClaimID(claim), Call: s.Call(s.Grant.TurnID,
		storagetest.Key(1, 1))}
}

// short returns the name of a row without the turn, if it belongs to this turn. To the names of
// other rows it appends " of another".
func (s scene) short(name string) string {
	kind, rest, _ := strings.Cut(name, " ")
	own, part, _ := strings.Cut(rest, " ")
	switch {
	case kind == "lane" && rest == string(s.Grant.Lane), kind == "message" &&
		own == fmt.Sprint(s.Record.Turn.MessageID):
		return kind
	case kind == "job" && own == fmt.Sprint(s.Grant.JobID):
		return kind
	case kind == "job":
		of := storagetest.One[string](s.env, `select coalesce((
			select format('%s %s.%s', args ->> 'turn_id', args ->> 'round', args ->> 'ordinal') from turnkeeper.river_job where id = $1), '')`, own)
		if call, ours := strings.CutPrefix(of, fmt.Sprint(s.Grant.TurnID, " ")); ours {
			return "job " + call
		}
		return name + " of another"
	case kind != "lane" && kind != "message" && own == fmt.Sprint(s.Grant.TurnID):
		if kind == "grant" || kind == "output" {
			return kind
		}
		return strings.TrimSpace(kind + " " + part)
	}
	return name + " of another"
}
