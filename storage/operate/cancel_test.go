package operate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestACancelledTurnVoidsTheRoundThatItStreams cancels a turn with one complete round, which has
// streamed events before its worker was lost. A round that has started, and that is neither complete
// nor rolled back, is rolled back.
func TestACancelledTurnVoidsTheRoundThatItStreams(t *testing.T) {
	h := newEnv(t)
	stream := func(d *storagetest.Dispatch, streamed string) (n int) {
		for event := range strings.SplitSeq(streamed, ", ") {
			var kind string
			var round int
			if _, err := fmt.Sscan(event, &kind, &round); err != nil {
				continue // nothing was streamed
			}
			n++
			h.Exec("select turnkeeper.add_events($1, array[$2::text], array[$3::integer], '{0}', array[''])",
				d.Grant.TurnID, kind, round)
		}
		h.Exec("update turnkeeper.journal set inference_rounds = 1 where turn_id = $1", d.Grant.TurnID)
		return n
	}
	stream(h.TurnOf("clerk", "worker-1"), "round_start 9") // the stream of another turn
	for streamed, want := range map[string]string{
		"nothing":       "",
		"round_start 1": "",
		"round_start 1, text 1, round_start 2, text 2":   "2",
		"round_start 1, notice 5":                        "",
		"round_start 2, round_rollback 2":                "",
		"round_start 2, round_rollback 2, notice 2":      "",
		"round_start 2, round_rollback 2, round_start 2": "2",
	} {
		h.Submit("desk", streamed, "x")
		d := h.Dispatch("worker-1")[0]
		n := stream(d, streamed)
		h.Lose(d)
		h.AskCancel(d)
		got := storagetest.One[string](h,
			"select coalesce(string_agg(round::text, ' '), '') from turnkeeper.turn_events where turn_id = $1 and seq > $2 and type = 'round_rollback'", d.Grant.TurnID, n)
		if got != want {
			t.Errorf("after %s: void is %q, want %q", streamed, got, want)
		}
	}
}

// TestWhatACancelledTurnSays cancels a turn of a message, which gets a reply, and a turn of a
// schedule, which gets no reply but keeps its text as inner dialogue.
func TestWhatACancelledTurnSays(t *testing.T) {
	h := newEnv(t)
	said := func(agent, trigger string, calls int, texts ...string) *storagetest.Dispatch {
		h.Submit(agent, "", "x")
		if trigger == "schedule" {
			h.Exec(
				"update turnkeeper.messages set trigger = 'schedule', schedule = 's', slot = now() where state = 'waiting'")
		}
		d := h.Dispatch("worker-1")[0]
		for i, text := range texts {
			r := storagetest.Round(i + 1)
			if i == 0 {
				r = storagetest.Round(1, make([]turnkeeper.Effect, calls)...)
				for i := range r.Calls {
					r.Calls[i].Effect = turnkeeper.EffectOnce
				}
			}
			r.Text = text
			d.Write(t, turnlog.Entry{Round: r})
		}
		return d
	}
	ofMessage, ofSchedule := said("clerk", "message", 2, "aloud"), said("desk", "schedule", 1, "first", " \n", "second")
	for d, want := range map[*storagetest.Dispatch]string{
		ofMessage: `{"state":"cancelled","stop_reason":"cancelled","rounds":1,"calls":2,"reply":"This turn was cancelled.\n\nBefore that it had written:\n\naloud"}` +
			"; This turn was cancelled.\n\nBefore that it had written:\n\naloud; ",
		ofSchedule: `{"state":"cancelled","stop_reason":"cancelled","rounds":3,"calls":1}; no reply; first` +
			"\n\n" + `second`,
	} {
		h.Lose(d)
		h.AskCancel(d)
		got := storagetest.One[string](h,
			`select concat(e.data::text, '; ', coalesce(r.body, 'no reply'), '; ', t.inner_dialogue) from turnkeeper.turns t
			join turnkeeper.turn_events e on e.turn_id = t.id and e.type = 'turn_error' left join turnkeeper.replies r on r.turn_id = t.id where t.id = $1`, d.Grant.TurnID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestACancelledMessageHasATurn cancels one of several waiting messages. The message gets a closed
// turn without a token. The others continue to wait.
func TestACancelledMessageHasATurn(t *testing.T) {
	h := newEnv(t)
	for range 2 {
		h.TurnOf("clerk", "worker-1").Finish(t, "done")
	}
	h.TurnOf("desk", "worker-1").Finish(t, "done")
	var ids []turnkeeper.MessageID
	for _, agent := range []string{"desk", "clerk", "clerk"} {
		ids = append(ids, h.Submit(agent, "", "y"))
	}
	before := h.Rows()
	done, err := h.CancelMessage(t.Context(), ids[1], "enough")
	if err != nil || !done.Closed {
		t.Fatalf("%+v, error %v", done, err)
	}
	want := []string{
		fmt.Sprintf("cancellation %d", done.Turn), fmt.Sprintf("event %d 1", done.Turn),
		fmt.Sprintf("message %d", ids[1]),
		fmt.Sprintf("reply %d", done.Turn), fmt.Sprintf("turn %d", done.Turn),
	}
	if diff := cmp.Diff(want, storagetest.Changed(before, h.Rows())); diff != "" {
		t.Errorf("rows changed (-want +got):\n%s", diff)
	}
	view, err := h.ViewTurn(t.Context(), done.Turn)
	if err != nil || view.Turn.Token != 0 || view.Turn.Attempt != 1 ||
		view.Message.State != turnkeeper.MessageCancelled || view.End == nil || view.End.Reason != "enough" {
		t.Errorf("%+v, error %v", view, err)
	}
	if other, err := h.ViewTurn(t.Context(), done.Turn-1); err != nil || other.End != nil {
		t.Errorf("another turn was asked for: %+v, error %v", other.End, err)
	}
	before = h.Rows()
	if again, err := h.CancelMessage(t.Context(), ids[1], "again"); err != nil || again != done {
		t.Errorf("a repeat: %+v, error %v", again, err)
	}
	if _, err := h.CancelTurn(t.Context(), done.Turn-1, "too late"); !errors.Is(err, turnkeeper.ErrWrongState) {
		t.Errorf("a turn that has ended: %v", err)
	}
	if _, err := h.CancelTurn(t.Context(), done.Turn+100, ""); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("no turn: %v", err)
	}
	if _, err := h.CancelMessage(t.Context(), ids[2]+100, ""); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("no message: %v", err)
	}
	for _, row := range storagetest.Changed(before, h.Rows()) {
		t.Errorf("what is refused changed %s", row)
	}
}

// TestWhichGrantsAreCancelled queries four of five grants. Three turns are to end, and one of them is not in the query.
func TestWhichGrantsAreCancelled(t *testing.T) {
	h := newEnv(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		h.Submit("desk", name, "x")
	}
	all := h.Dispatch("worker-1")
	h.AskCancel(all[1])
	h.AskCancel(all[2])
	if _, err := h.FinishTurn(t.Context(), all[3].Grant.TurnID, "enough"); err != nil {
		t.Fatal(err)
	}
	got, err := h.EndsRequested(t.Context(), []turnkeeper.GrantID{all[0].Grant.GrantID, all[1].Grant.GrantID,
		all[3].Grant.GrantID, all[4].Grant.GrantID})
	want := map[turnkeeper.GrantID]turnlog.WantedEnd{all[1].Grant.GrantID: turnlog.EndCancel,
		all[3].Grant.GrantID: turnlog.EndFinish}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v; (-want +got):\n%s", err, diff)
	}
}

// TestACancellationWaitsForATick cancels during a tick. A turn or message that the tick may grant is
// closed only after the tick, and not at all if the tick has closed it.
func TestACancellationWaitsForATick(t *testing.T) {
	h := newEnv(t)
	waiting := h.Waiting("waits")
	h.Submit("desk", "queued", "x")
	queued := h.Dispatch("worker-1")[0]
	h.Again(queued, "worker-1")
	running := h.TurnOf("clerk", "worker-1")
	messages := []turnkeeper.MessageID{h.Submit("desk", "queued", "y"), h.Submit("desk", "queued", "z")}
	nothing := func() {}
	turn := func(d *storagetest.Dispatch) func(context.Context, *storagetest.DB) error {
		return func(ctx context.Context, far *storagetest.DB) error {
			_, err := far.CancelTurn(ctx, d.Grant.TurnID, "")
			return err
		}
	}
	h.Exec("update turnkeeper.turns set state = 'queued', grant_id = null where id = $1", queued.Grant.TurnID)
	h.Exec(
		"update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null where lane = $1", queued.Grant.Lane)
	for _, c := range []struct {
		name      string
		meanwhile func()
		do        func(context.Context, *storagetest.DB) error
		waits     bool
	}{
		{"a running turn", nothing, turn(running), false},
		{"a queued turn", nothing, turn(queued), true},
		{"a waiting turn", nothing, turn(waiting), true},
		{"a message", nothing, func(ctx context.Context, far *storagetest.DB) error {
			_, err := far.CancelMessage(ctx, messages[0], "")
			return err
		}, true},
		{"a message that is answered meanwhile", func() {
			h.Exec("update turnkeeper.messages set state = 'succeeded', closed_at = clock_timestamp() where id = $1",
				messages[1])
		}, func(ctx context.Context, far *storagetest.DB) error {
			if _, err := far.CancelMessage(ctx, messages[1], ""); !errors.Is(err, turnkeeper.ErrWrongState) {
				return fmt.Errorf("cancelled: %w", err)
			}
			return nil
		}, true},
		{"a message that is answered", nothing, func(ctx context.Context, far *storagetest.DB) error {
			if _, err := far.CancelMessage(ctx, messages[1], ""); !errors.Is(err, turnkeeper.ErrWrongState) {
				return fmt.Errorf("cancelled: %w", err)
			}
			return nil
		}, false},
	} {
		if waits := h.WaitsBehind(c.meanwhile, c.do, "select turnkeeper.lock_scheduler()"); waits != c.waits {
			t.Errorf("the cancellation of %s waits: %t", c.name, waits)
		}
	}
}

// TestRetries retries a message in each state, while the models of its agent are up and while they are down. A message
// that waits for them is due too, and they are tried at once.
func TestRetries(t *testing.T) {
	t.Run("the models are up", func(t *testing.T) { testRetries(t, false) })
	t.Run("the models are down", func(t *testing.T) { testRetries(t, true) })
}

// testRetries retries a message in each state. Other messages, turns, lanes and models that wait for a time must not
// change.
func testRetries(t *testing.T, down bool) {
	h := newEnv(t)
	h.Exec("update turnkeeper.agents set models = case name when 'desk' then '{m/a,m/b}' else '{m/other}' end::text[]")
	const modelsDown = `insert into turnkeeper.model_health (model, down_since, until, failures)
		select m, now(), clock_timestamp() + interval '1 h', 1 from unnest('{m/a,m/b,m/other}'::text[]) m`
	begin := func(name string) *storagetest.Dispatch {
		h.Submit("desk", name, "x")
		for _, d := range h.Dispatch("worker-1") {
			if d.Record.Turn.Conversation == name {
				return d
			}
		}
		t.Fatalf("no turn of %s", name)
		return nil
	}
	end := func(d *storagetest.Dispatch, o turnlog.Outcome, ending turnlog.Consequence) {
		if err := d.Append(t.Context(), turnlog.Entry{Outcome: &o}, ending); err != nil {
			t.Fatal(err)
		}
	}
	const dueLater = "update turnkeeper.messages set due_at = date_trunc('second', now()) + interval '1 h' where conversation = $1"
	const pauses = "update turnkeeper.leases set not_before = clock_timestamp() + $2::interval where lane = 'desk/' || $1"
	later := func(name string) {
		h.Submit("desk", name, "x")
		h.Exec(dueLater, name)
	}
	deferred := turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Hour}
	// A message, a turn and a lane that wait for a time.
	later("other")
	end(begin("other-deferred"), deferred, turnlog.Consequence{Log: "deferred"})
	end(begin("other-pauses"), *storagetest.Succeeded("done"), storagetest.Answered)
	h.Exec(pauses, "other-pauses", "1 h")
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "no", Reply: "no"}
	degraded := turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds, Reply: "so far"}
	for name, c := range map[string]struct {
		before  func(name string)
		want    string // the result without and with anyway
		changed string
	}{
		"failed": {func(name string) {
			end(begin(name), failed, turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"})
		}, "new, repeated", "message"},
		"failed, with a priority that no sender may use": {func(name string) {
			end(begin(name), failed, turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"})
			h.Exec("update turnkeeper.messages set priority = 1000, sent_by = 'token:ops' where conversation = $1", name)
		}, "new, repeated", "message"},
		"answered": {func(name string) {
			end(begin(name), *storagetest.Succeeded("done"), storagetest.Answered)
		}, "refused, refused", ""},
		"degraded": {func(name string) { end(begin(name), degraded, storagetest.Answered) }, "risky, new", "message"},
		"waiting":  {func(name string) { h.Submit("desk", name, "x") }, "refused, refused", ""},
		"later":    {later, "due, refused", "message"},
		"later, by a clock that was set back": {func(name string) {
			later(name)
			h.Exec("update turnkeeper.messages set accepted_at = due_at where conversation = $1", name)
		}, "refused, refused", ""},
		"due since a while": {func(name string) {
			h.Submit("desk", name, "x")
			h.Exec(
				"update turnkeeper.messages set due_at = now() - interval '1 h', accepted_at = now() - interval '2 h' where conversation = $1", name)
		}, "refused, refused", ""},
		"failed once, and its lane pauses": {func(name string) {
			end(begin(name), failed, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished",
				LaneBackoff: time.Hour})
		}, "due, refused", "lane"},
		"failed once, and its lane has paused": {func(name string) {
			end(begin(name), failed, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished",
				LaneBackoff: time.Hour})
			h.Exec(pauses, name, "-1 s")
		}, "refused, refused", ""},
		"running, and its lane pauses": {func(name string) {
			begin(name)
			h.Exec(pauses, name, "1 h")
		}, "refused, refused", ""},
		"running, due at a time": {func(name string) {
			begin(name)
			h.Exec("update turnkeeper.turns set due_at = clock_timestamp() + interval '1 h' where conversation = $1",
				name)
		}, "refused, refused", ""},
		"deferred": {func(name string) {
			end(begin(name), deferred, turnlog.Consequence{Log: "deferred"})
		}, "due, refused", "turn"},
		"waits for its models": {func(name string) {
			end(begin(name), turnlog.Outcome{State: turnkeeper.TurnWaiting, WaitsFor: []string{"m/a", "m/b"},
				Backoff: time.Hour}, turnlog.Consequence{Log: "waiting"})
		}, "due, refused", "turn"},
		"deferred until now": {func(name string) {
			end(begin(name), deferred, turnlog.Consequence{Log: "deferred"})
			h.Exec("update turnkeeper.turns set due_at = clock_timestamp() where conversation = $1", name)
		}, "refused, refused", ""},
	} {
		c.before(name)
		id := storagetest.One[turnkeeper.MessageID](h, "select id from turnkeeper.messages where conversation = $1",
			name)
		if down {
			h.Exec(modelsDown)
			if storagetest.One[bool](h, "select state = 'waiting' from turnkeeper.messages where id = $1", id) {
				c.want = "due, refused"
			}
		}
		var got, kinds []string
		var made turnkeeper.MessageID
		for _, anyway := range []bool{false, true} {
			before := h.Rows()
			var done operate.Retried
			var err error
			rings := h.Heard(func() { done, err = h.Retry(t.Context(), id, anyway) })
			what := "new"
			switch {
			case errors.Is(err, operate.ErrMayRepeatEffects):
				what = "risky"
			case errors.Is(err, turnkeeper.ErrWrongState):
				what = "refused"
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case done.DueNow:
				what = "due"
			case done.Repeat:
				what = "repeated"
			}
			got = append(got, what)
			rows := storagetest.Changed(before, h.Rows())
			for _, row := range rows {
				kind, _, _ := strings.Cut(row, " ")
				kinds = append(kinds, kind)
			}
			told := strings.Join(slices.Compact(rings), " ") == "inbox"
			if told != (len(rows) > 0 || what == "due") {
				t.Errorf("%s: changed %v, and it rings %q", name, rows, rings)
			}
			if what == "new" && err == nil {
				made = done.Message
				const of = `select jsonb_build_array(agent, user_name, body, conversation, priority, sent_by)::text
					from turnkeeper.messages where id = $1`
				if first, second := storagetest.One[string](h, of, id), storagetest.One[string](h, of,
					made); first != second {
					t.Errorf("%s: %s is retried as %s", name, first, second)
				}
			}
			if made != 0 && err == nil && (done.Message != made || made == id) || err == nil && made == 0 &&
				done.Message != id {
				t.Errorf("%s: %+v, of %d", name, done, id)
			}
		}
		if strings.Join(got, ", ") != c.want || strings.Join(kinds, " ") != c.changed {
			t.Errorf("%s: %v, changed %v; want %s, %s", name, got, kinds, c.want, c.changed)
		}
		tried, wantTried := storagetest.One[string](h, `with past as (delete from turnkeeper.model_health returning *)
			select coalesce(string_agg(model, ' ' order by model), '') from past where until <= clock_timestamp()`), ""
		if down && slices.Contains(got, "due") {
			wantTried = "m/a m/b"
		}
		if tried != wantTried {
			t.Errorf("%s: the models %q are tried, want %q", name, tried, wantTried)
		}
	}
	if _, err := h.Retry(t.Context(), 1_000_000, true); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("no message: %v", err)
	}
}
