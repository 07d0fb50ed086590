package jobs_test

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/survival"
	"turnkeeper/storage/operate"
)

// An operator makes a change while a tick is in progress that has read its snapshot, but not yet the messages. That
// tick must not grant a message that is sent after the change, and that the change holds.
func TestATickGrantsNothingThatWasSentAfterAChange(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, s *site) error{
		"the scheduler is paused": func(ctx context.Context, s *site) error { return s.PauseScheduler(ctx, "a test") },
		"a level is pinned": func(ctx context.Context, s *site) error {
			return s.PinLevel(ctx, operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann"})
		},
		"a level is unpinned": func(ctx context.Context, s *site) error { return s.UnpinLevel(ctx, "clerk") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.exec(`update turnkeeper.agents set levels = '{"low": {"min_priority": 9}}' where name = 'clerk'`)
			if name == "a level is unpinned" { // and all are pinned to a lower one
				must(s, s.PinLevel(t.Context(), operate.Pin{Level: survival.Low, By: "ann"}))
				must(s, s.PinLevel(t.Context(), operate.Pin{Agent: "clerk", Level: survival.Normal, By: "ann"}))
			}
			s.start(kind{model: echo, scheduler: true, queued: true, passive: true})
			s.await("exists (select from turnkeeper.settings where last_tick_at is not null)")
			hold, err := s.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = hold.Rollback(context.Background()) }()
			// The query of messages reads this table, and the one of the snapshot does not.
			if _, err := hold.Exec(t.Context(), "lock table turnkeeper.model_health"); err != nil {
				t.Fatal(err)
			}
			must(s, s.RingInbox(t.Context()))
			s.await("exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))",
				hold.Conn().PgConn().PID())
			sent := make(chan turnkeeper.MessageID, 1)
			go func() {
				defer close(sent)
				if err := change(t.Context(), s); err != nil {
					t.Error(err)
					return
				}
				id, err := s.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x"})
				if err != nil {
					t.Error(err)
				}
				sent <- id
			}()
			s.await(`exists (select from turnkeeper.messages) or exists (select from pg_locks
				where relation = 'turnkeeper.scheduler_lock'::regclass and not granted)`)
			if err := hold.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			message := <-sent
			s.exec("select turnkeeper.lock_scheduler()") // when the tick has ended
			if m, err := s.Message(t.Context(), message); err != nil || m.State != turnkeeper.MessageWaiting {
				t.Errorf("the message is %s, error %v", m.State, err)
			}
		})
	}
}
