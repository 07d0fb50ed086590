package jobs_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/scheduler"
)

// A job that River gave to a worker and that did not arrive there is given out
// again; one that arrived, or is another's, or new, is not.
func TestOverlookedJobs(t *testing.T) {
	for name, c := range map[string]struct {
		fetched string // SQL of what the fetch noted, or came after it
		older   time.Duration
		works   bool // the worker knows of it
		given   int
	}{
		"not arrived":             {"update turnkeeper.river_job set attempted_by = '{before,me}'", 5 * time.Second, false, 1},
		"not arrived, no more":    {"update turnkeeper.river_job set attempted_by = '{me}', attempted_at = now()", 0, false, 1},
		"fetched just now":        {"update turnkeeper.river_job set attempted_by = '{me}', attempted_at = now()", 5 * time.Second, false, 0},
		"another's":               {"update turnkeeper.river_job set attempted_by = '{me,other}'", 5 * time.Second, false, 0},
		"worked":                  {"update turnkeeper.river_job set attempted_by = '{me}'", 5 * time.Second, true, 0},
		"written to":              {"update turnkeeper.turns set worker_id = 'me'", 5 * time.Second, false, 0},
		"of a grant that is over": {"update turnkeeper.turns set grant_id = gen_random_uuid()", 5 * time.Second, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.enqueue("clerk", "", "Hello")
			if err := s.Beat(t.Context(), turnkeeper.Heartbeat{WorkerID: "me", Slots: 1, TakeoverAfter: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if _, err := scheduler.New(scheduler.Config{Store: s.dispatcher(s.start(kind{}))}).Tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.exec("update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now() - interval '6 s', attempted_by = '{me}'")
			s.exec(c.fetched)
			var working []turnkeeper.GrantID
			if c.works {
				working = append(working, turnkeeper.GrantID(one[string](s, "select grant_id::text from turnkeeper.leases")))
			}
			n, err := s.GiveBackJobs(t.Context(), "me", c.older, working)
			if err != nil || n != c.given {
				t.Errorf("%d were given back, %v; want %d", n, err, c.given)
			}
			want := "running 1"
			if c.given == 1 {
				want = "available 0"
			}
			if got := one[string](s, "select state || ' ' || attempt from turnkeeper.river_job"); got != want {
				t.Errorf("the job is %s, want %s", got, want)
			}
			s.start(kind{model: echo})
			if c.given == 1 {
				s.reply(id)
			}
		})
	}
}
