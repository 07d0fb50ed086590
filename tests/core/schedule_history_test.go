package core_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// scheduleWith returns the front matter of a schedule with more keys.
func scheduleWith(keys string) string {
	return `schedule: {cron: "@every 1h", message: "Look around."` + keys + `}`
}

// runSlots runs n slots of the schedule and returns the requests of each run.
func runSlots(e *env.Env, from, n int) (sent []inferencetest.Recorded) {
	e.T.Helper()
	for i := range n {
		e.MissSlots(0)
		e.AwaitSlots(from + i)
		sent = append(sent, lastRequest(e))
	}
	return sent
}

// roles returns the roles of a request's messages after the system prompt.
func roles(r inferencetest.Recorded) string {
	var all []string
	for _, m := range r.Chat().Messages[1:] {
		all = append(all, m.Role)
	}
	return strings.Join(all, " ")
}

func TestTheHistoryOfASchedule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys string
		want [4]string
	}{
		"none": {", history: none", [4]string{"user", "user", "user", "user"}},
		"last": {", history: last", [4]string{"user", "user assistant user", "user assistant user",
			"user assistant user"}},
		"the default": {"", [4]string{"user", "user assistant user", "user assistant user", "user assistant user"}},
		"all": {", history: all", [4]string{"user", "user assistant user", "user assistant user user assistant user",
			"user assistant user assistant user user assistant user assistant user"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", scheduleWith(c.keys))
			e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
				return inferencetest.Text(fmt.Sprintf("Seen %05d.", r.N))
			})
			e.StartWorker()
			var sizes []int
			for i := range 4 {
				sent := runSlots(e, i+1, 1)[0]
				sizes = append(sizes, len(sent.Body))
				want := c.want[i]
				if name == "all" {
					want = strings.Repeat("user assistant ", 2*i) + "user"
				}
				if got := roles(sent); got != want {
					t.Errorf("run %d was sent %q, not %q", i+1, got, want)
				}
				if i > 0 && strings.Contains(c.want[1], "assistant") {
					if before := fmt.Sprintf("Seen %05d.", sent.N-2); !strings.Contains(requestText(sent), before) {
						t.Errorf("run %d does not see the text of the previous run, %q:\n%s", i+1, before,
							requestText(sent))
					}
				}
				wantRebuilt(e, env.Query[int64](e, "select max(id) from turns"), 1, sent)
				// A message between the runs sees all of them.
				e.TurnOf(e.Enqueue("clerk", "What is new?"))
				if n := strings.Count(requestText(lastRequest(e)), "Look around."); n != i+1 {
					t.Errorf("a message sees %d of %d runs:\n%s", n, i+1, requestText(lastRequest(e)))
				}
			}
			if grows := sizes[3] > sizes[1]+50; grows != (name == "all") {
				t.Errorf("the requests have %v bytes", sizes)
			}
		})
	}
}

// The previous run is found by its schedule and conversation, even if other turns ran in between. The request has its
// effects, but not its reads.
func TestThePreviousRun(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "quiet_reply: Nothing new", `schedule:
  - {name: watch, cron: "@every 1h", message: "Watch."}
  - {name: other, cron: "@every 1h", message: "Other."}`)
	e.Ledger.SetAnswer("read", "a long reading")
	e.Ledger.SetAnswer("act", "booked seat 4")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) != "Watch." {
			return inferencetest.Text("Well.")
		}
		return env.Rounds(
			inferencetest.Message("I look.", env.MarkerCall("mark_none", "read"), env.MarkerCall("mark_once", "act")),
			inferencetest.Text("Nothing new"),
		)(r)
	})
	e.StartWorker()
	e.Await("the schedules are registered", "select count(*) = 2 from schedules where next_due is not null")
	run := func(schedule string, n int) {
		e.Exec("update schedules set next_due = clock_timestamp() where name = $1", schedule)
		e.Exec("notify turnkeeper_inbox")
		e.AwaitSlots(n)
	}
	run("watch", 1)
	run("other", 2)
	for n := range 41 {
		e.Exec("select turnkeeper.enqueue('clerk', $1)", fmt.Sprintf("Message %d.", n))
	}
	e.Await("all are answered",
		"select count(*) = 41 from replies where outcome = 'succeeded' and body = 'Well.' and message_id in (select id from messages where trigger = 'message')")
	asked := len(e.Model.Requests())
	run("watch", 3)
	sent := e.Model.Requests()[asked]
	got := requestText(sent)
	for _, sign := range []string{"user: Watch.\n", `<mark_once {"label":"act"}>`, "booked seat 4",
		"assistant: Nothing new"} {
		if !strings.Contains(got, sign) {
			t.Errorf("the previous run is shown without %q:\n%s", sign, got)
		}
	}
	_, conversation, _ := strings.Cut(got, "\nuser: ")
	for _, sign := range []string{"a long reading", "mark_none", "Message ", "Other.", "not shown"} {
		if strings.Contains(conversation, sign) {
			t.Errorf("the request has %q beside the previous run:\n%s", sign, got)
		}
	}
	wantNoRepeatedRole(t, sent)
	wantRebuilt(e, env.Query[int64](e, "select max(id) from turns"), 1, sent)
}

// The next run sees a run that was cancelled or had no reply.
func TestTheNextRunSeesACancelledRun(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, scheduleWith(""))
	e.Ledger.SetAnswer("pay", "paid invoice 7")
	e.Ledger.Hold("more")
	defer e.Ledger.Release()
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if strings.Contains(requestText(r), "paid invoice 7") &&
			r.Chat().Messages[len(r.Chat().Messages)-1].Role == "user" {
			return inferencetest.Text("It was paid.")
		}
		return env.Rounds(env.MarkerReply("mark_once", "pay"), env.MarkerReply("mark_slow", "more"))(r)
	})
	e.StartWorker()
	e.MissSlots(0)
	e.Ledger.Await("more", 1)
	cancelTurn(e, strconv.FormatInt(env.Query[int64](e, "select max(id) from turns"), 10))
	e.AwaitSlots(1)
	runSlots(e, 2, 1)
	sent := lastRequest(e)
	for _, sign := range []string{"paid invoice 7", "may or may not have happened", "This turn was cancelled"} {
		if !strings.Contains(requestText(sent), sign) {
			t.Errorf("the request lacks %q:\n%s", sign, requestText(sent))
		}
	}
	wantNoRepeatedRole(t, sent)
	e.Ledger.WantRuns("pay", 1)
}
