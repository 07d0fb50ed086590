package jobs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/jobs"
	"turnkeeper/storage/storagetest"
)

// notify runs SQL as a role that has the rights of a sender.
func (s *site) notify(role *pgx.Conn, sql string, args ...any) {
	s.t.Helper()
	if _, err := role.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// A grant to another process is fetched when its doorbell rings, not at the next poll.
func TestAGrantToAnotherProcessWaitsForNoPoll(t *testing.T) {
	s := newSite(t)
	s.start(kind{model: echo, poll: time.Hour})
	s.start(kind{scheduler: true})
	for range 3 {
		s.reply(s.enqueue("clerk", "", "hello"))
	}
}

// A role of senders can notify every channel, because Postgres has no right for that. Whatever it sends on River's
// channels, the turn that runs goes on, the next one starts without a poll, and nothing is logged.
func TestSendersCannotCommandRiver(t *testing.T) {
	s := newSite(t)
	core, logged := observer.New(zap.InfoLevel)
	asked, resume := make(chan struct{}), make(chan struct{})
	p := s.start(kind{poll: time.Hour, log: zap.New(core), model: func(ctx context.Context,
		body string) (string, error) {
		if body != "slow" {
			return echo(ctx, body)
		}
		close(asked)
		select {
		case <-resume:
			return "done", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}})
	s.start(kind{scheduler: true})
	slow := s.enqueue("clerk", "", "slow")
	<-asked
	role, err := pgx.Connect(t.Context(), storagetest.SenderURL(t, s.url, "_sender"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = role.Close(context.Background()) }()
	control := "select pg_notify('turnkeeper.river_control', $1)"
	for _, queue := range []string{"*", "turns", "turns_" + string(p.id)} {
		s.notify(role, control, `{"action": "pause", "queue": "`+queue+`"}`)
	}
	s.notify(role,
		`select pg_notify('turnkeeper.river_control', jsonb_build_object('action', 'cancel', 'queue', 'turns', 'job_id', n)::text)
		from generate_series(0, 100) n`)
	s.notify(role, `select pg_notify('turnkeeper.river_leadership', $1)`, `{"action": "request_resign"}`)
	for _, channel := range []string{"control", "leadership", "insert"} {
		s.notify(role,
			`select pg_notify('turnkeeper.river_' || $1, repeat('{', 1 + n % 7000) || n) from generate_series(1, 5000) n`, channel)
	}
	// River hears what comes next after all of that.
	s.reply(s.enqueue("desk", "", "next"))
	close(resume)
	if reply := s.reply(slow); reply.Body != "done" {
		t.Errorf("the reply is %q", reply.Body)
	}
	if n := s.view(slow).Turn.Dispatches; n != 1 {
		t.Errorf("the turn was dispatched %d times", n)
	}
	if n := logged.Len(); n > 0 {
		t.Errorf("%d lines are logged, the first: %v", n, logged.All()[0])
	}
}

// A line is a listener that receives the payloads that are sent to it.
type line struct {
	riverdriver.Listener
	payloads chan string
}

func (l line) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case payload := <-l.payloads:
		return &riverdriver.Notification{Topic: "river_insert", Payload: payload}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l line) Listen(context.Context, string) error { return nil }

// TestADoorbellRingsWhenItListens checks that a queue whose job was inserted while nobody listened is rung for once
// somebody does, after each new connection.
func TestADoorbellRingsWhenItListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bells := jobs.Doorbells(line{payloads: make(chan string)}, "turns")
		rings := func() (n int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for {
				if _, err := bells.WaitForNotification(ctx); err != nil {
					return n
				}
				n++
			}
		}
		for _, c := range []struct {
			topic string
			rings int
		}{{"river_control", 0}, {"river_insert", 1}, {"river_insert", 1}, {"river_leadership", 0}} {
			if err := bells.Listen(t.Context(), c.topic); err != nil {
				t.Fatal(err)
			}
			if n := rings(); n != c.rings {
				t.Errorf("%d rings after it listens to %s, want %d", n, c.topic, c.rings)
			}
		}
	})
}

// A flood of doorbells rings at a bounded rate. The last one still rings, and one after a pause rings at once.
func TestAFloodOfDoorbells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := line{payloads: make(chan string)}
		bells := jobs.Doorbells(in, "turns")
		rings := make(chan time.Time, 100_000)
		go func() {
			for {
				n, err := bells.WaitForNotification(t.Context())
				if err != nil {
					return
				}
				if n.Topic != "river_insert" || n.Payload != `{"queue":"turns"}` {
					t.Errorf("River hears %+v", n)
				}
				rings <- time.Now()
			}
		}()
		const flood = 10 * time.Second
		for began := time.Now(); time.Since(began) < flood; {
			time.Sleep(time.Millisecond) //nolint:forbidigo // of the bubble
			in.payloads <- `{"queue": "turns", "action": "pause"}`
			in.payloads <- `{"queue": "other"}`
			in.payloads <- "{{{"
		}
		last := time.Now()
		synctest.Wait()
		time.Sleep(jobs.RingEvery) //nolint:forbidigo // of the bubble
		synctest.Wait()
		var at time.Time
		n := len(rings)
		for range n {
			at = <-rings
		}
		if most := jobs.RingBurst + int(flood/jobs.RingEvery) + 1; n > most || n < most/2 {
			t.Errorf("%d rings in %v, want at most %d", n, flood, most)
		}
		if at.Before(last.Add(-time.Millisecond)) {
			t.Errorf("the last ring came %v before the flood's end", last.Sub(at))
		}
		time.Sleep(flood) //nolint:forbidigo // of the bubble
		for _, other := range []string{`{"queue": "other"}`, "turns", ""} {
			in.payloads <- other
		}
		synctest.Wait()
		if len(rings) != 0 {
			t.Errorf("%d rings for others", len(rings))
		}
		in.payloads <- `{"queue": "turns"}`
		synctest.Wait()
		if len(rings) != 1 {
			t.Errorf("%d rings after a pause", len(rings))
		}
	})
}

// cut is a listener whose connection is broken.
type cut struct{ riverdriver.Listener }

var errCut = errors.New("the connection is broken")

func (cut) WaitForNotification(context.Context) (*riverdriver.Notification, error) {
	return nil, errCut
}

// River is told that the connection broke, so that it connects again.
func TestABrokenConnectionOfDoorbells(t *testing.T) {
	if n, err := jobs.Doorbells(cut{}, "turns").WaitForNotification(t.Context()); n != nil || !errors.Is(err, errCut) {
		t.Errorf("%v, %v", n, err)
	}
}
