package jobs_test

import (
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/jobs"
	"turnkeeper/policy"
	"turnkeeper/scheduler"
)

const divining = "---\ndescription: d\nmodel: script/m\ntools: [divine]\n---\nYou are the clerk.\n"

// askedTurn returns a message whose turn asks a person about a call of the tool divine, and waits.
func (s *site) askedTurn() turnkeeper.MessageID {
	s.t.Helper()
	ctx := s.t.Context()
	s.register("clerk", divining)
	id := s.enqueue("clerk", "", "divine it")
	if err := s.Beat(ctx, presence.Heartbeat{WorkerID: "gone", Slots: 1}); err != nil {
		s.t.Fatal(err)
	}
	d := &jobs.Dispatcher{Grants: s.Grants, TTL: time.Minute}
	if _, err := scheduler.New(scheduler.Config{Store: d}).Tick(ctx); err != nil {
		s.t.Fatal(err)
	}
	turn, grant := one[turnkeeper.TurnID](s, "select id from turnkeeper.turns"), one[turnkeeper.GrantID](s,
		"select grant_id::text from turnkeeper.turns")
	if _, err := s.BindGrant(ctx, turn, grant, "gone"); err != nil {
		s.t.Fatal(err)
	}
	record, err := s.Load(ctx, turn, grant)
	if err != nil {
		s.t.Fatal(err)
	}
	key := turnkeeper.CallKey{Round: 1, Ordinal: 1}
	err = jobs.NewJournal(s.Journals, record, turnkeeper.Grant{
		TurnID: turn, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: grant, JobID: record.Turn.JobID,
		WorkerID: "gone",
	}).Append(ctx, turnlog.Entry{
		Round: &turnkeeper.Round{Number: 1, Charged: true, Calls: []turnkeeper.ToolCall{{
			Key: key, WireID: "a", Name: "divine", Arguments: "{}", Effect: turnkeeper.EffectOnce,
			State: turnkeeper.CallPlanned,
		}}},
		Gates: []turnkeeper.CallKey{key},
		Asks: []asks.Question{{
			Call: key, Kind: asks.KindApprove, N: 1, Tool: "divine", Arguments: "{}", Rule: policy.Always,
			Terms: asks.Terms{Timeout: time.Hour, Hold: true},
		}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.exec("update turnkeeper.river_job set state = 'completed', finalized_at = now() where kind = 'AgentTurn'")
	s.exec("update turnkeeper.worker_heartbeat set stopped_at = now() where worker_id = 'gone'")
	return id
}

// TestAToolIsTakenAwayWhileAPersonIsAsked takes a tool away while a person is asked about a call of it. If no live
// worker may have the tool, or the agent no longer lists it, the call is answered at once. Else the turn is offered to
// the others first.
func TestAToolIsTakenAwayWhileAPersonIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		decision string
		others   bool   // a live worker may have the tool
		newest   string // the agent's file as of now; empty: unchanged
		waits    bool
	}{
		"no worker has it":                         {decision: "approved"},
		"no worker has it, and a person denied it": {decision: "denied"},
		"the agent no longer lists it":             {decision: "approved", others: true, newest: plainClerk},
		"another worker may have it":               {decision: "approved", others: true, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.askedTurn()
			if c.newest != "" {
				s.register("clerk", c.newest)
			}
			if c.others {
				if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "other", Slots: 1,
					TakeoverAfter: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			s.exec("select turnkeeper.answer_ask(id, $1, 'ann') from turnkeeper.asks", c.decision)
			s.start(kind{model: echo, scheduler: true})
			if !c.waits {
				if reply := s.reply(id); reply.Outcome != turnkeeper.TurnSucceeded {
					t.Errorf("the reply is %+v", reply)
				}
				if n := one[int](s, "select count(*) from turnkeeper.lease_log where outcome = 'handed_back'"); n != 0 {
					t.Errorf("it was handed back %d times", n)
				}
				if state := one[string](s, "select state || ' ' || shown from turnkeeper.calls"); !strings.HasPrefix(
					state, "denied ") {
					t.Errorf("the call is %s", state)
				}
				return
			}
			s.await("exists (select from turnkeeper.lease_log where outcome = 'handed_back')")
			s.exec("update turnkeeper.worker_heartbeat set stopped_at = now() where worker_id = 'other'")
			// the pause after a hand-back is over
			s.exec("update turnkeeper.turns set due_at = now() where state = 'queued'")
			s.exec("select pg_notify('turnkeeper_inbox', '')")
			if reply := s.reply(id); reply.Outcome != turnkeeper.TurnSucceeded {
				t.Errorf("the reply is %+v", reply)
			}
		})
	}
}
