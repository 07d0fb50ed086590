package core_test

import (
	"regexp"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

func TestMissedSlotsCollapse(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.HourlySchedule)
	e.Model.Then(env.Rounds(inferencetest.Text("All quiet.")))
	e.StartWorker()
	e.MissSlots(9*time.Hour + 30*time.Minute) // ten slots
	if n := e.AwaitSlots(1); n != 1 {
		t.Errorf("ten missed slots made %d messages", n)
	}
	e.WantRequests(1)
	if next := env.Query[float64](e,
		"select extract(epoch from next_due - clock_timestamp())::float8 from schedules"); next < 1700 || next > 1800 {
		t.Errorf("the next slot comes in %.0f s: the rhythm is lost", next)
	}
	e.MissSlots(time.Second)
	if n := e.AwaitSlots(2); n != 2 {
		t.Errorf("after the next slot there are %d messages", n)
	}
}

// A slot without text leaves no reply. Its inner dialogue is stored for operators.
func TestAQuietSlot(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.HourlySchedule+"\nquiet_reply: Nothing new.")
	e.Model.Then(env.Rounds(inferencetest.Text("*Nothing new*")))
	e.StartWorker()
	e.MissSlots(time.Second)
	e.AwaitSlots(1)
	if n := env.Query[int](e, "select count(*) from replies"); n != 0 {
		t.Errorf("there are %d replies", n)
	}
	got := env.Query[string](e, "select state || ' ' || stop_reason || ' ' || inner_dialogue from turns")
	if got != "succeeded none *Nothing new*" {
		t.Errorf("the turn is %q", got)
	}
	e.Model.Then(env.Rounds(inferencetest.Text("The price fell.")))
	e.MissSlots(time.Second)
	e.AwaitSlots(2)
	if got := env.Query[string](e, "select string_agg(body, '|') from replies"); got != "The price fell." {
		t.Errorf("the replies are %q", got)
	}
}

func TestTwoWorkersOneSlot(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.HourlySchedule)
	e.Model.Then(env.Rounds(inferencetest.Text("All quiet.")))
	e.StartWorker()
	e.StartWorker()
	for slot := 1; slot <= 3; slot++ {
		e.MissSlots(time.Second)
		if n := e.AwaitSlots(slot); n != slot {
			t.Errorf("after %d slots there are %d messages", slot, n)
		}
	}
	e.WantRequests(3)
}

func TestAScheduledTurnDoesNotRepeatWhatIsFresh(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.HourlySchedule, env.MarkerTools)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if m := r.Chat().Messages; m[len(m)-1].Role == "tool" {
			return inferencetest.Text("Seen.")
		}
		return inferencetest.Calls(env.MarkerCall("mark_once", "look"))
	})
	e.StartWorker()
	e.MissSlots(time.Second)
	e.AwaitSlots(1)
	e.MissSlots(time.Second)
	e.AwaitSlots(2)
	e.Ledger.WantRuns("look", 1)
	second := e.Show(env.Query[int64](e, "select max(id) from turns"))
	c := second.Calls()[0]
	if c.State != "skipped" || !regexp.MustCompile(
		`^skipped due to freshness dedupe: last success \d+ seconds ago within 600 second window$`).MatchString(
		c.Result) {
		t.Errorf("the second call is %s: %q", c.State, c.Result)
	}
	e.WantEnd(second, "succeeded", "none", 2)
}
