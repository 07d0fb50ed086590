package storesuite

import (
	"strconv"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

// asideProperties say that a row that fails stops no other, and goes on by itself once it no longer fails.
var asideProperties = []property{
	{"a message that cannot be granted stops no other", messageFails},
	{"a lost turn that cannot be queued again stops no other", func(e *env) { e.lostTurnFails(0) }},
	{"a lost turn that cannot be closed stops no other", func(e *env) { e.lostTurnFails(2) }},
	{"a queued turn that cannot be granted stops no other", queuedTurnFails},
	{"a schedule whose slot fails stops no other", scheduleFails},
	{"a detached call that cannot be ended stops no other", detachedCallFails},
	{"a row that fails again is tried less and less often", failsAgain},
}

func asideMessage(id turnkeeper.MessageID) granting.Subject {
	return granting.Subject{Kind: granting.AsideMessage, ID: strconv.FormatInt(int64(id), 10)}
}

func asideTurn(id turnkeeper.TurnID) granting.Subject {
	return granting.Subject{Kind: granting.AsideTurn, ID: strconv.FormatInt(int64(id), 10)}
}

// ticks ticks with one scheduler until it has nothing more to do, at most n times, and returns what it granted and how
// many ticks failed.
func (e *env) ticks(s *scheduler.Scheduler, n int) (granted, failed int) {
	e.Helper()
	for range n {
		e.beat(first, second)
		report, err := s.Tick(e.Context())
		if err != nil {
			failed++
			continue
		}
		granted += report.Granted
	}
	return granted, failed
}

// asidePause is the time after which a row that failed once is tried again.
const asidePause = time.Minute + time.Second

// goesOn checks that with a failing row the rest is granted after one failed tick, that the row is left alone then, and
// that it goes on by itself once it does not fail any more, with one more grant. rest is the number of grants to expect
// before.
func (e *env) goesOn(row granting.Subject, rest int) {
	e.Helper()
	s := scheduler.New(scheduler.Config{Store: e.Scheduler(), Log: zap.NewNop()})
	e.Fail(row, true)
	granted, failed := e.ticks(s, 2)
	equal(e, "ticks that the row makes fail", failed, 1)
	equal(e, "granted beside it", granted, rest)
	granted, failed = e.ticks(s, 2)
	equal(e, "ticks that fail afterwards", failed, 0)
	equal(e, "granted afterwards", granted, 0)
	e.Fail(row, false)
	e.Pass(asidePause) // s would take it for a step of the clock
	granted, failed = e.ticks(scheduler.New(scheduler.Config{Store: e.Scheduler()}), 2)
	equal(e, "ticks that fail once the row is well", failed, 0)
	equal(e, "granted once it is well", granted, 1)
	_, failed = e.ticks(scheduler.New(scheduler.Config{Store: e.Scheduler()}), 1)
	equal(e, "ticks of another scheduler that fail", failed, 0)
}

func messageFails(e *env) {
	id := e.enqueue("desk", "a", "this one fails")
	for _, conversation := range []string{"b", "c", "d"} {
		e.enqueue("desk", conversation, "this one does not")
	}
	e.enqueue("desk", "a", "behind the one that fails")
	e.goesOn(asideMessage(id), 3)
	equal(e, "the message", e.Message(id).State, turnkeeper.MessageRunning)
}

// lostTurnFails takes a turn from its lost worker, after it has lost others before.
func (e *env) lostTurnFails(losses int) {
	d := e.turn()
	for range losses {
		d = e.again(d)
	}
	e.Pass(LeaseTTL)
	e.enqueue("desk", "a", "another lane")
	if losses > 1 { // it is closed instead of granted again
		e.enqueue("clerk", "", "behind the lost turn")
	}
	e.goesOn(asideTurn(d.grant.TurnID), 1)
	turn, _ := e.Turn(d.grant.TurnID)
	if losses > 1 {
		equal(e, "the turn that lost its workers", turn.State, turnkeeper.TurnDegraded)
	} else {
		equal(e, "the turn that lost its worker", turn.State, turnkeeper.TurnRunning)
	}
}

func queuedTurnFails(e *env) {
	d := e.turn()
	wantErr(e, "hand back", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "bye"}), nil)
	e.enqueue("desk", "a", "another lane")
	e.goesOn(asideTurn(d.grant.TurnID), 1)
}

func scheduleFails(e *env) {
	e.Register(schedule())
	e.tick()
	e.Pass(hourly + time.Minute)
	e.enqueue("desk", "a", "another lane")
	e.goesOn(granting.Subject{Kind: granting.AsideSchedule, ID: "clerk/s"}, 1)
}

func detachedCallFails(e *env) {
	d := e.waits(turnkeeper.EffectOnce)
	c := e.claim(first)
	e.Pass(2 * time.Hour) // it is overdue
	e.enqueue("desk", "a", "another lane")
	e.goesOn(granting.LostCall{Ref: c.Ref}.AsideOf(), 1)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "the turn of the call", turn.State, turnkeeper.TurnRunning)
}

// failsAgain looks when a row that fails each time is tried again.
func failsAgain(e *env) {
	id := e.enqueue("desk", "a", "this one fails")
	s := scheduler.New(scheduler.Config{Store: e.Scheduler(), Log: zap.NewNop()})
	e.Fail(asideMessage(id), true)
	e.ticks(s, 2)
	for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		e.Pass(pause - 10*time.Second)
		e.Fail(asideMessage(id), false)
		granted, _ := e.ticks(s, 2)
		equal(e, "granted before "+pause.String(), granted, 0)
		e.Fail(asideMessage(id), true)
		e.Pass(11 * time.Second)
		e.ticks(s, 2)
	}
	e.Fail(asideMessage(id), false)
	e.Pass(8*time.Minute + time.Second)
	granted, failed := e.ticks(s, 2)
	equal(e, "granted at last", granted, 1)
	equal(e, "ticks that fail", failed, 0)
}
