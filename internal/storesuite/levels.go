package storesuite

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
)

var levelProperties = []property{
	{"a level follows what is left of the day", levelsFollow},
	{"a level is the same for all that reserve", levelRefuses},
	{"a level ends with the day", levelEndsWithTheDay},
	{"a level is decided again when the budget changes", levelOfANewBudget},
	{"a pinned level goes first", levelPinned},
	{"messages of a low priority wait at a level", levelHolds},
	{"a level holds no message of a sub-agent and no turn that has begun", levelHoldsNoTurn},
	{"messages that a level held go on in order", levelLetsGo},
	{"a slot does not run at a level", levelSkipsSlots},
	{"the models of a level decide what waits for a model", levelModels},
	{"a level leads around a model that is down, and back", levelLeadsAround},
	{"the wait for a service is for the models of the level", levelServiceWait},
}

// rationed returns a registration of clerk with a budget of a hundred calls a day.
func rationed(rules survival.Rules, schedules ...turnkeeper.Schedule) turnkeeper.AgentRegistration {
	a := registration("clerk", false, schedules...)
	a.DayCalls = 100
	text, err := json.Marshal(maps.Collect(maps.All(rules))) // not null
	if err != nil {
		panic(err)
	}
	a.Levels = text
	return a
}

// from returns the rules that serve only messages of a priority or more at level low.
func from(priority int) survival.Rules {
	return survival.Rules{survival.Low: {MinPriority: &priority}}
}

// reserve reserves a call of clerk, whose model was chosen for a level.
func reserve(e *env, chosen survival.Level) agentturn.Reservation {
	e.Helper()
	r, err := e.Budget().Reserve(e.Context(), agentturn.Spender{
		Turn: 1, Agent: "clerk", Limits: agentturn.SpendLimits{DayCalls: 100}, Level: chosen,
	}, turnkeeper.Usage{InputTokens: 1})
	wantErr(e, "reserve", err, nil)
	return r
}

// use makes n calls of clerk.
func use(e *env, n int) {
	e.Helper()
	for range n {
		wantErr(e, "settle", e.Budget().Settle(e.Context(), reserve(e, ""), turnkeeper.Usage{InputTokens: 1}), nil)
	}
}

func wantLevel(e *env, what string, want survival.Level) {
	e.Helper()
	equal(e, what, reserve(e, "").Level, want)
}

func levelsFollow(e *env) {
	e.Register(rationed(nil))
	use(e, 79)
	wantLevel(e, "with 21 left", survival.Normal) // it is the 80th
	wantLevel(e, "with 20 left", survival.Normal)
	wantLevel(e, "with 19 left", survival.Low)
	use(e, 13)
	wantLevel(e, "with 5 left", survival.Low)
	wantLevel(e, "with 4 left", survival.Critical)
	equal(e, "level of another agent", levelOf(e, "desk"), survival.Normal)
}

func levelOf(e *env, agent string) survival.Level {
	e.Helper()
	r, err := e.Budget().Reserve(e.Context(), agentturn.Spender{Turn: 2, Agent: agent,
		Limits: agentturn.SpendLimits{DayCalls: 1000}}, turnkeeper.Usage{})
	wantErr(e, "reserve", err, nil)
	return r.Level
}

func levelRefuses(e *env) {
	e.Register(rationed(nil))
	use(e, 81)
	for range 2 {
		r := reserve(e, survival.Normal)
		if r.ID != 0 || r.Blocked || r.Level != survival.Low {
			e.Errorf("a call for another level: %+v", r)
		}
	}
	if r := reserve(e, survival.Low); r.ID == 0 || r.Blocked {
		e.Errorf("a call for the agent's level: %+v", r)
	}
	use(e, 18) // refused ones took nothing
	if r := reserve(e, survival.Critical); !r.Blocked || r.Scope != "day" {
		e.Errorf("the 101st call: %+v", r)
	}
}

func levelEndsWithTheDay(e *env) {
	e.Register(rationed(from(1)))
	use(e, 81)
	id := e.enqueue("clerk", "", "later")
	equal(e, "granted at level low", e.tick().Granted, 0)
	e.Pass(25 * time.Hour)
	wantLevel(e, "the next day", survival.Normal)
	equal(e, "granted the next day", e.next(first).record.Message.ID, id)
}

func levelOfANewBudget(e *env) {
	a := rationed(from(1))
	e.Register(a)
	use(e, 81)
	id := e.enqueue("clerk", "", "later")
	equal(e, "granted at level low", e.tick().Granted, 0)
	a.DayCalls = 1000
	e.Register(a)
	equal(e, "granted with a larger budget", e.next(first).record.Message.ID, id)
	a.DayCalls = 50
	e.Register(a)
	wantLevel(e, "with a smaller budget", survival.Critical)
}

func levelPinned(e *env) {
	e.Register(rationed(nil))
	use(e, 81)
	e.PinLevel("", survival.Critical)
	wantLevel(e, "of all", survival.Critical)
	equal(e, "of an agent without a budget", levelOf(e, "desk"), survival.Critical)
	e.PinLevel("clerk", survival.Normal)
	wantLevel(e, "its own", survival.Normal)
	equal(e, "of another agent", levelOf(e, "desk"), survival.Critical)
	e.PinLevel("clerk", "")
	e.PinLevel("", "")
	wantLevel(e, "no more", survival.Low)
}

func levelHolds(e *env) {
	e.Register(rationed(from(5)))
	low := e.enqueue("clerk", "", "of no priority")
	e.PinLevel("clerk", survival.Low)
	high, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", Body: "urgent", Priority: 5})
	wantErr(e, "enqueue", err, nil)
	if got := e.Blockers(low); !slices.Contains(got, waiting.SurvivalLevel) {
		e.Errorf("the message of a low priority has the blockers %q", got)
	}
	equal(e, "granted", e.next(first).record.Message.ID, high)
	later := e.enqueue("clerk", "other", "of no priority, later")
	equal(e, "granted beside it", e.tick().Granted, 0)
	for _, id := range []turnkeeper.MessageID{low, later} {
		if got := e.Blockers(id); !slices.Contains(got, waiting.SurvivalLevel) {
			e.Errorf("message %d has the blockers %q", id, got)
		}
	}
	other := e.enqueue("desk", "", "of another agent")
	equal(e, "granted of another agent", e.next(first).record.Message.ID, other)
	_, closed, err := e.CancelMessage(e.Context(), later)
	if err != nil || !closed {
		e.Errorf("a held message is cancelled: %v, error %v", closed, err)
	}
}

func levelHoldsNoTurn(e *env) {
	e.Register(rationed(from(5)))
	d := e.turn()
	e.PinLevel("clerk", survival.Low)
	wantErr(e, "hand back", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "bye"}), nil)
	again := e.next(second)
	equal(e, "turn", again.grant.TurnID, d.grant.TurnID)
	again.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce)})
	start, handle := again.spawnOf(key(1, 1), "clerk", "sub")
	again.append(turnlog.Entry{Starts: []turnlog.CallStart{start}, Results: []turnlog.CallResult{handle}})
	equal(e, "granted to the sub-agent", e.next(first).record.Message.ID, start.Spawn.Message)
}

func levelLetsGo(e *env) {
	e.Register(rationed(from(5)))
	e.PinLevel("", survival.Low)
	var ids []turnkeeper.MessageID
	for _, body := range []string{"one", "two", "three"} {
		ids = append(ids, e.enqueue("clerk", "", body))
		equal(e, "granted", e.tick().Granted, 0)
	}
	e.PinLevel("", survival.Critical) // of which the file says nothing
	for _, id := range ids {
		d := e.next(first)
		equal(e, "granted message", d.record.Message.ID, id)
		wantErr(e, "end", d.end(succeeded("done")), nil)
	}
}

func levelSkipsSlots(e *env) {
	rules := survival.Rules{survival.Low: {NoSchedules: true}}
	other := rationed(rules)
	other.Name = "desk"
	e.Register(other)
	e.PinLevel("desk", survival.Low) // which does not concern the clerk
	e.Register(rationed(rules, schedule().Schedules...))
	e.tick()
	e.PinLevel("clerk", survival.Low)
	e.Pass(3*hourly + time.Minute)
	equal(e, "slots", e.tick().Slots, 0)
	equal(e, "granted", e.tick().Granted, 0)
	e.Pass(hourly)
	e.tick()
	s := e.Schedule("clerk", "s")
	if s.Skipped != 2 || s.SkippedWhy != "the agent's survival level is low" || s.SkippedSlot.IsZero() ||
		!s.LastSlot.IsZero() {
		e.Errorf("the schedule is %+v", s)
	}
	e.PinLevel("clerk", "")
	e.Pass(hourly)
	equal(e, "slots of the normal level", e.tick().Slots, 1)
	if s := e.Schedule("clerk", "s"); s.Skipped != 0 || s.SkippedWhy != "" || !s.SkippedSlot.IsZero() ||
		s.LastSlot.IsZero() {
		e.Errorf("after it ran, the schedule is %+v", s)
	}
}

func levelModels(e *env) {
	a := rationed(survival.Rules{survival.Low: {Models: []string{"cheap/model"}}})
	a.Models, a.GiveUpAfter = []string{modelUsed}, 1000*time.Hour
	e.Register(a)
	d := e.turn()
	wantErr(e, "end", d.failedBy(0, 0), nil)
	e.Pass(time.Second)
	other := e.enqueue("clerk", "", "another")
	if got := e.Blockers(other); !slices.Contains(got, waiting.ModelDown) {
		e.Errorf("the blockers are %q", got)
	}
	e.PinLevel("clerk", survival.Low)
	if got := e.Blockers(other); slices.Contains(got, waiting.ModelDown) {
		e.Errorf("at a level with another model, the blockers are %q", got)
	}
}

// twoModels returns a registration of clerk that asks modelUsed, and another model at level low.
func twoModels(giveUp time.Duration) turnkeeper.AgentRegistration {
	a := rationed(survival.Rules{survival.Low: {Models: []string{"cheap/model"}}})
	a.Models, a.GiveUpAfter = []string{modelUsed}, giveUp
	return a
}

// failModel makes a model fail in a turn of another agent that uses it.
func failModel(e *env, model string) {
	e.Helper()
	r := registration("broken", true)
	r.Models, r.GiveUpAfter = []string{model}, 1000*time.Hour
	e.Register(r)
	id := e.enqueue("broken", model, "x")
	d := e.next(first)
	equal(e, "granted message", d.record.Message.ID, id)
	o := failed(true)
	o.WaitsFor, o.Backoff = []string{model}, time.Hour
	f := modelhealth.Failure{Model: model, ErrorClass: "overloaded", Error: "unavailable", RetryAfter: 100 * time.Hour}
	wantErr(e, "end", d.Append(e.Context(), turnlog.Entry{ModelFailures: []modelhealth.Failure{f}, Outcome: &o}),
		nil)
	_, _, err := e.CancelMessage(e.Context(), id)
	wantErr(e, "cancel", err, nil)
}

func levelLeadsAround(e *env) {
	e.Register(twoModels(1000 * time.Hour))
	for _, c := range []struct {
		down   string
		blocks survival.Level // has no model that is up
		free   survival.Level
	}{{modelUsed, survival.Normal, survival.Low}, {"cheap/model", survival.Low, survival.Normal}} {
		failModel(e, c.down)
		e.PinLevel("clerk", c.blocks)
		id := e.enqueue("clerk", "", "about "+c.down)
		if got := e.Blockers(id); !slices.Contains(got, waiting.ModelDown) {
			e.Errorf("%s is down: at level %s, the blockers are %q", c.down, c.blocks, got)
		}
		e.beat(first)
		equal(e, "granted at level "+string(c.blocks), e.tick().Granted, 0)
		e.PinLevel("clerk", c.free)
		d := e.next(first)
		equal(e, "granted message", d.record.Message.ID, id)
		equal(e, "level in the record", d.record.Level, c.free)
		o := succeeded("done")
		wantErr(e, "end", d.Append(e.Context(), turnlog.Entry{Answered: []string{c.down}, Outcome: &o}), nil)
	}
}

// levelServiceWait checks that a message gives up for the models of its agent's level only, and that a probe is of
// these.
func levelServiceWait(e *env) {
	e.Register(twoModels(time.Minute))
	failModel(e, modelUsed)
	e.PinLevel("clerk", survival.Low)
	e.enqueue("clerk", "", "one")
	e.Pass(2 * time.Minute)
	e.beat(first)
	d := e.next(first)
	equal(e, "waited at a level whose model is up", d.record.Waited, 0)
	wantErr(e, "end", d.end(succeeded("done")), nil)

	e.PinLevel("clerk", survival.Normal)
	e.enqueue("clerk", "", "two")
	e.beat(first)
	equal(e, "granted while it may wait", e.tick().Granted, 0)
	e.Pass(2 * time.Minute)
	e.beat(first)
	if d = e.next(first); d.record.Waited < time.Minute {
		e.Errorf("at a level whose model is down, the wait is %v", d.record.Waited)
	}
}
