package tests_test

import (
	"regexp"
	"testing"
	"time"
)

const hourly = `schedule: {cron: "@every 1h", message: "Look around."}`

// miss makes the schedule look as if nothing had run for so long.
func (h *house) miss(ago time.Duration) {
	h.t.Helper()
	h.await("the schedule is known", "select exists (select from schedules where next_due is not null)")
	h.exec("update schedules set next_due = clock_timestamp() - $1::interval", ago)
	h.exec("notify turnkeeper_inbox")
}

// slots returns how many messages schedules have made, once n are closed and
// the next slot lies in the future.
func (h *house) slots(n int) int {
	h.t.Helper()
	h.await("the slot's turn is over",
		"select count(*) >= $1 from messages where trigger = 'schedule' and closed_at is not null", n)
	h.await("the next slot lies ahead", "select bool_and(next_due > clock_timestamp()) from schedules")
	return query[int](h, "select count(*) from messages where trigger = 'schedule'")
}

func TestMissedSlotsCollapse(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", hourly)
	h.model.Then(rounds(text("All quiet.")))
	h.startWorker()
	h.miss(9*time.Hour + 30*time.Minute) // ten slots
	if n := h.slots(1); n != 1 {
		t.Errorf("ten missed slots made %d messages", n)
	}
	h.requests(1)
	if next := query[float64](h, "select extract(epoch from next_due - clock_timestamp())::float8 from schedules"); next < 1700 || next > 1800 {
		t.Errorf("the next slot comes in %.0f s: the rhythm is lost", next)
	}
	h.miss(time.Second)
	if n := h.slots(2); n != 2 {
		t.Errorf("after the next slot there are %d messages", n)
	}
}

// A slot with nothing to tell leaves no reply, and what was said for operators.
func TestAQuietSlot(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", hourly+"\nquiet_reply: Nothing new.")
	h.model.Then(rounds(text("*Nothing new*")))
	h.startWorker()
	h.miss(time.Second)
	h.slots(1)
	if n := query[int](h, "select count(*) from replies"); n != 0 {
		t.Errorf("there are %d replies", n)
	}
	got := query[string](h, "select state || ' ' || stop_reason || ' ' || inner_dialogue from turns")
	if got != "succeeded none *Nothing new*" {
		t.Errorf("the turn is %q", got)
	}
	h.model.Then(rounds(text("The price fell.")))
	h.miss(time.Second)
	h.slots(2)
	if got := query[string](h, "select string_agg(body, '|') from replies"); got != "The price fell." {
		t.Errorf("the replies are %q", got)
	}
}

func TestTwoWorkersOneSlot(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", hourly)
	h.model.Then(rounds(text("All quiet.")))
	h.startWorker()
	h.startWorker()
	for slot := 1; slot <= 3; slot++ {
		h.miss(time.Second)
		if n := h.slots(slot); n != slot {
			t.Errorf("after %d slots there are %d messages", slot, n)
		}
	}
	h.requests(3)
}

func TestAScheduledTurnDoesNotRepeatWhatIsFresh(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", hourly, marks)
	h.model.Then(func(r recorded) reply {
		if m := r.Chat().Messages; m[len(m)-1].Role == "tool" {
			return text("Seen.")
		}
		return calls(call("mark_none", "look"))
	})
	h.startWorker()
	h.miss(time.Second)
	h.slots(1)
	h.miss(time.Second)
	h.slots(2)
	h.ledger.ran("look", 1)
	second := h.show(query[int64](h, "select max(id) from turns"))
	c := second.calls()[0]
	if c.State != "skipped" || !regexp.MustCompile(`^skipped due to freshness dedupe: last success \d+ seconds ago within 600 second window$`).MatchString(c.Result) {
		t.Errorf("the second call is %s: %q", c.State, c.Result)
	}
	h.ended(second, "succeeded", "none", 2)
}
