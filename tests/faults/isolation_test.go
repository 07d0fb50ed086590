package faults_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A poison is a row that everything fails at, and how to make it fail and heal it.
type poison struct {
	what    string // that doctor reports
	error   string // that doctor reports, and that is logged
	harm    []string
	heal    []string
	message int64 // that is answered once it is healed; 0: none
}

// raising returns a poison that a trigger makes: it raises an error for the rows of the condition.
func raising(name, what, on, condition string) poison {
	text := "a fault of " + name
	return poison{
		what: what, error: text,
		harm: []string{
			fmt.Sprintf(
				"create function poison_%s() returns trigger language plpgsql as $$ begin if %s then raise exception '%s'; end if; return new; end $$",
				name, condition, text),
			fmt.Sprintf("create trigger poison_%s before %s for each row execute function poison_%[1]s()", name, on),
		},
		heal: []string{fmt.Sprintf("drop function poison_%s cascade", name)},
	}
}

// One row of each kind cannot be read or written: the journal of a turn that must be closed, the end of another one's
// grant, a message to grant, a schedule's slot, a webhook's delivery. Messages in other lanes are answered, operators
// are told what fails, and each row goes on by itself once it no longer fails.
func TestOneRowOfEachKindFails(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	e.WriteAgent("watcher", env.HourlySchedule)
	e.WriteAgent("looker", env.HourlySchedule)
	receiver := env.NewWebhookReceiver(t, nil)
	e.AddWebhook("hook", receiver.URL, "agents: [clerk]")
	stuck := make(chan struct{})
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		body := env.NewestMessage(r)
		if strings.HasPrefix(body, "stuck") && env.RoundOf(r) == 2 {
			return inferencetest.WaitFor(stuck, inferencetest.Text("too late"))
		}
		return standardTurn(r)
	})
	t.Cleanup(func() { close(stuck) })
	flags := []string{"--max-dispatches", "1"}
	dies := e.StartWorker(flags...)
	e.AwaitSchedule()
	unreadable := e.Enqueue("clerk", "stuck, unreadable", "--conversation", "unreadable")
	unended := e.Enqueue("clerk", "stuck, not to be ended", "--conversation", "unended")
	e.Await("both turns are in their second round", "select count(*) = 2 from journal where round = 1")
	e.Poll("both asked again", func() bool { return len(e.Model.Requests()) >= 4 })
	ungranted := env.Query[int64](e, "select nextval('messages_id_seq') + 1")

	turnOf := func(message int64) int64 {
		return env.Query[int64](e, "select turn_id from messages where id = $1", message)
	}
	journal := poison{
		what: fmt.Sprintf("turn %d cannot be", turnOf(unreadable)), error: "cannot call populate_composite",
		message: unreadable,
		harm: []string{
			"create table kept as select answer from journal where round = 1 and turn_id = " +
				fmt.Sprint(turnOf(unreadable)),
			"update journal set answer = '[1]' where round = 1 and turn_id = " + fmt.Sprint(turnOf(unreadable)),
		},
		heal: []string{"update journal set answer = (select answer from kept) where round = 1 and turn_id = " +
			fmt.Sprint(turnOf(unreadable)), "drop table kept"},
	}
	ended := poison{
		what: fmt.Sprintf("turn %d cannot be", turnOf(unended)), error: "ended_grants_pkey", message: unended,
		harm: []string{
			fmt.Sprintf(
				`insert into ended_grants select lane, token, gen_random_uuid(), 0, job_id, worker_id, granted_at, lease_until, clock_timestamp(), 'finished'
			from turns where id = %d`, turnOf(unended))},
		heal: []string{"delete from ended_grants where turn_id = 0"},
	}
	granted := raising("grant", fmt.Sprintf("message %d cannot be", ungranted), "insert on turns",
		fmt.Sprintf("new.message_id = %d", ungranted))
	granted.message = ungranted
	slot := raising("slot", "the slot of schedule watcher/default cannot", "insert on messages",
		"new.agent = 'watcher'")
	delivery := raising("delivery", "of a webhook cannot be claimed", "update on webhook_deliveries",
		"exists (select from turnkeeper.replies r where r.id = new.reply_id and r.body = 'answer to other 0')")
	all := []poison{journal, ended, granted, slot, delivery}

	dies.Kill()
	for _, p := range all {
		for _, sql := range p.harm {
			e.Exec(sql)
		}
	}
	e.CountAsLost(dies)
	e.MissSlots(time.Hour)
	if got := e.Enqueue("clerk", "not to be granted", "--conversation", "ungranted"); got != ungranted {
		t.Fatalf("message %d, want %d", got, ungranted)
	}
	began := time.Now()
	w := e.StartWorker(flags...)
	for i := range 3 {
		body := fmt.Sprint("other ", i)
		wantAnswered(e, acceptAndAwait(e, body), body)
	}
	e.Await("the other schedule has run",
		"select exists (select from messages where agent = 'looker' and closed_at is not null)")
	e.Await("the other replies are delivered", "select count(*) >= 2 from webhook_deliveries where state = 'delivered'")
	t.Logf("others were answered after %s", time.Since(began).Round(time.Millisecond))

	for _, p := range all {
		e.Poll("doctor reports "+p.error, func() bool { return reports(e, p) })
		w.Await(p.error)
	}
	for _, command := range [][]string{{"turns"}, {"inbox"}, {"lanes"}, {"asks"}, {"schedules"}, {"workers"},
		{"top", "--once"}, {"outbox"}, {"set-aside"}} {
		if r := e.Turnctl(command...); r.Code != 0 {
			t.Errorf("turnctl %s exits with %d: %s", strings.Join(command, " "), r.Code, r.Stderr)
		}
	}
	if advised := doctorSays(e, "give a worker the role scheduler"); advised {
		t.Error("doctor wants another scheduler")
	}
	said := w.Output.String()
	before := map[string]int{}
	for _, p := range all {
		before[p.error] = strings.Count(said, p.error)
		if n := before[p.error]; n > 4 { // a failed tick, the first failures of the row, and those of a webhook
			t.Errorf("%q was logged %d times", p.error, n)
		}
	}
	if strings.Contains(said, "current transaction is aborted") {
		t.Error("an error that follows from another one was logged")
	}

	for _, p := range all {
		for _, sql := range p.heal {
			e.Exec(sql)
		}
	}
	if r := e.Turnctl("set-aside", "retry"); r.Code != 0 { // instead of waiting for a minute
		t.Errorf("set-aside retry exits with %d: %s", r.Code, r.Stderr)
	}
	for _, p := range all {
		if p.message != 0 {
			e.AwaitClosed(p.message)
		}
	}
	e.AwaitDeliveries("hook", "pending", 0)
	e.Await("the slot has become a message",
		"select exists (select from messages where agent = 'watcher' and closed_at is not null)")
	e.Await("nothing is set aside", "select not exists (select from set_aside)")
	wantAnswered(e, ungranted, "not to be granted")
}

// A check is a finding of doctor.
type doctorCheck struct{ Name, Verdict, Found, Advice string }

func doctorChecks(e *env.Env) []doctorCheck {
	e.T.Helper()
	var found struct{ Checks []doctorCheck }
	r := e.Turnctl("doctor", "-o", "json")
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		e.T.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	return found.Checks
}

// reports tells whether doctor reports a poison as a failure with advice.
func reports(e *env.Env, p poison) bool {
	e.T.Helper()
	for _, c := range doctorChecks(e) {
		if c.Name == "set aside" && c.Verdict == "fail" && strings.Contains(c.Found, p.what) &&
			strings.Contains(c.Found, p.error) && strings.Contains(c.Advice, "remove what the error names") {
			return true
		}
	}
	return false
}

func doctorSays(e *env.Env, text string) bool {
	e.T.Helper()
	for _, c := range doctorChecks(e) {
		if strings.Contains(c.Found+c.Advice, text) {
			return true
		}
	}
	return false
}

// A worker starts though the rows of an agent, and of a schedule of another one, cannot be written. It registers the
// others, reports these, and registers them by itself once they no longer fail.
func TestAnAgentThatCannotBeRegistered(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	e.WriteAgent("broken", "lane: conversation")
	e.WriteAgent("watcher", env.HourlySchedule)
	e.Model.Then(standardTurn)
	all := []poison{
		raising("agent", "agent broken cannot be registered", "insert on agents", "new.name = 'broken'"),
		raising("slots", "agent watcher cannot be registered", "insert on schedules", "new.agent = 'watcher'"),
	}
	for _, p := range all {
		for _, sql := range p.harm {
			e.Exec(sql)
		}
	}
	w := e.StartWorker()
	wantAnswered(e, acceptAndAwait(e, "hello"), "hello")
	for _, p := range all {
		e.Poll("doctor reports "+p.error, func() bool { return reports(e, p) })
		w.Await(p.error)
	}
	for _, p := range all {
		for _, sql := range p.heal {
			e.Exec(sql)
		}
	}
	if r := e.Turnctl("set-aside", "retry"); r.Code != 0 { // instead of waiting for a minute
		t.Errorf("set-aside retry exits with %d: %s", r.Code, r.Stderr)
	}
	e.Await("both are registered", "select count(*) = 2 from agents where name in ('broken', 'watcher')")
	e.Await("nothing is set aside", "select not exists (select from set_aside)")
}

// Rows of set_aside cannot be deleted. What they are about goes on all the same, and that is reported.
func TestNothingCanBeForgotten(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	e.Model.Then(standardTurn)
	w := e.StartWorker()
	next := env.Query[int64](e, "select nextval('messages_id_seq') + 1")
	granted := raising("grant", fmt.Sprintf("message %d cannot be", next), "insert on turns",
		fmt.Sprintf("new.message_id = %d", next))
	kept := raising("forgetting", `the step "rows set aside" of the scheduler's tick fails`,
		"delete on set_aside", "true")
	for _, sql := range append(granted.harm, kept.harm...) {
		e.Exec(sql)
	}
	poisoned := e.Enqueue("clerk", "one", "--conversation", "one")
	e.Poll("doctor reports the message", func() bool { return reports(e, granted) })
	for _, sql := range granted.heal {
		e.Exec(sql)
	}
	if r := e.Turnctl("set-aside", "retry"); r.Code != 0 {
		t.Errorf("set-aside retry exits with %d: %s", r.Code, r.Stderr)
	}
	e.AwaitClosed(poisoned)
	wantAnswered(e, acceptAndAwait(e, "other"), "other")
	e.Poll("doctor reports the step", func() bool { return reports(e, kept) })
	w.Await(kept.error)
	if n := strings.Count(w.Output.String(), "a scheduler tick failed"); n > 1 {
		t.Errorf("%d ticks failed as a whole", n)
	}
	for _, sql := range kept.heal {
		e.Exec(sql)
	}
	e.Await("nothing is set aside", "select not exists (select from set_aside)")
}
