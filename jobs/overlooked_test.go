package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/testrun"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage/grants"
)

// A worker gives back what River gave it and it does not run: a job that did not reach it, and a
// turn that it left without an outcome. It does not give back what it runs, what belongs to
// another worker, and what it fetched just now.
func TestOverlooked(t *testing.T) {
	testrun.Guard(t)
	job, grant, none := grants.Overlooked{Jobs: 1}, grants.Overlooked{Grants: 1}, grants.Overlooked{}
	for name, c := range map[string]struct {
		then  string // SQL after the fetch
		older time.Duration
		works bool // the worker runs the turn
		want  grants.Overlooked
	}{
		"not arrived": {"update turnkeeper.river_job set attempted_by = '{before,me}'",
			5 * time.Second, false, job},
		"not arrived, no more": {"update turnkeeper.river_job set attempted_at = now()", 0, false, job},
		"fetched just now": {"update turnkeeper.river_job set attempted_at = now()",
			5 * time.Second, false, none},
		"another's": {"update turnkeeper.river_job set attempted_by = '{me,other}'",
			5 * time.Second, false, none},
		"worked": {"", 5 * time.Second, true, none},
		"of a grant that is over": {"update turnkeeper.turns set grant_id = gen_random_uuid()",
			5 * time.Second, false, none},
		"left": {"update turnkeeper.turns set worker_id = 'me'", 5 * time.Second, false, grant},
		"left unwritten": {"update turnkeeper.river_job set state = 'discarded', finalized_at = now()",
			5 * time.Second, false, grant},
		"written to, and worked": {"update turnkeeper.turns set worker_id = 'me'", 5 * time.Second, true, none},
		"written to by another":  {"update turnkeeper.turns set worker_id = 'other'", 5 * time.Second, false, none},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.enqueue("clerk", "", "Hello")
			if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "me", Slots: 1,
				TakeoverAfter: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if _, err := scheduler.New(scheduler.Config{Store: s.dispatcher(s.start(kind{}))}).Tick(
				t.Context()); err != nil {
				t.Fatal(err)
			}
			s.exec(
				"update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now() - interval '6 s', attempted_by = '{me}'")
			if c.then != "" {
				s.exec(c.then)
			}
			var working []turnkeeper.GrantID
			if c.works {
				working = append(working, turnkeeper.GrantID(one[string](s,
					"select grant_id::text from turnkeeper.leases")))
			}
			got, err := s.GiveBack(t.Context(), "me", c.older, working, nil)
			if err != nil || got != c.want {
				t.Errorf("%+v were given back, %v; want %+v", got, err, c.want)
			}
			if c.want != none {
				s.start(kind{model: echo, scheduler: true})
				s.reply(id)
			}
		})
	}
}

// A worker logs what it gives back, and another worker can have it.
func TestWhatAWorkerGivesBack(t *testing.T) {
	const fetched = `update turnkeeper.river_job set state = 'running', attempt = 1, attempted_by = '{w}',
		attempted_at = now() - interval '%s' where kind = '%s'`
	fates := recordFates(t, "givenback.txt")
	for name, c := range map[string]struct {
		call bool // a detached call; else a turn
		then string
	}{
		"nothing":          {},
		"a job":            {then: fmt.Sprintf(fetched, "6 s", "AgentTurn")},
		"a young job":      {then: fmt.Sprintf(fetched, "0 s", "AgentTurn")},
		"a turn":           {then: fmt.Sprintf(fetched, "6 s", "AgentTurn") + boundToW},
		"a young turn":     {then: fmt.Sprintf(fetched, "0 s", "AgentTurn") + boundToW},
		"unknown turns":    {then: "alter table turnkeeper.river_job rename to moved"},
		"a job of a call":  {call: true, then: fmt.Sprintf(fetched, "6 s", "DetachedCall")},
		"a young call":     {call: true, then: fmt.Sprintf(fetched, "0 s", "DetachedCall")},
		"a claimed call":   {call: true, then: claimedBefore + "6 s'"},
		"a young claim":    {call: true, then: claimedBefore + "0 s'"},
		"unknown calls":    {call: true, then: "alter table turnkeeper.river_job rename to moved"},
		"nothing of calls": {call: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			worker, logs := s.turnWorker(echo, nil)
			giveBack := worker.GiveBack
			if c.call {
				s.detachedCall()
				calls := s.buildWorker(nil)
				calls.Log = worker.Log
				giveBack = calls.GiveBack
			} else {
				s.enqueue("clerk", "", "hello")
				s.grant()
			}
			if c.then != "" {
				s.exec(c.then)
			}
			giveBack(t.Context(), 5*time.Second)
			if strings.HasPrefix(name, "unknown") {
				s.exec("alter table turnkeeper.moved rename to river_job")
			}
			fates.add(name, s, "", logs)
		})
	}
}

const boundToW = "; update turnkeeper.turns set worker_id = 'w'"

const claimedBefore = `update turnkeeper.detached_calls set claim = gen_random_uuid(), worker_id = 'w',
	claimed_at = now() - interval '`

// TestAJobThatRiverCannotReadFreesItsSlot notes jobs that River has fetched and has not brought to the worker. After
// five seconds their slots are free again.
func TestAJobThatRiverCannotReadFreesItsSlot(t *testing.T) {
	s := newSite(t)
	w := jobs.NewWorker(jobs.WorkerConfig{DB: s.DB.DB, WorkerID: "w"})
	w.Fetched(1, 5*time.Second)
	w.Fetched(2, time.Hour)
	w.Fetched(3, 0)
	w.Fetched(4, -time.Hour) // the clock was set back
	if w.GiveBack(t.Context(), 5*time.Second); !strings.Contains(w.Resources(), " 2 fetched,") {
		t.Errorf("the worker holds %s", w.Resources())
	}
}
