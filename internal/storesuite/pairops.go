package storesuite

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/asks"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

// An operation does one thing with a store. It says what it did and what the store answered.
type operation struct {
	name   string
	weight int // how often it is done
	do     func(*side)
}

// operations are what programs consist of.
func operations() []operation {
	return []operation{
		{"enqueue", 10, sendOp}, {"enqueue many", 1, sendManyOp},
		{"tick", 8, tickOnceOp}, {"tick without heartbeats", 2, tickSilentOp}, {"tick with a worker", 3, tickLocalOp},
		{"take", 4, takeAllOp}, {"serve", 12, serveOp}, {"fetch again", 1, forgetOp},
		{"write", 40, writeOp}, {"write and lose the answer", 4, writeCutOp}, {"write many", 2, writeManyOp},
		{"transact", 4, transactOp}, {"late result", 4, lateOp}, {"arrivals", 6, arrivalsOp},
		{"end", 10, endOp}, {"wait", 8, waitOp},
		{"run detached calls", 6, runCallsOp}, {"end detached calls", 6, endCallsOp},
		{"answer", 12, answerOp},
		{"cancel a message", 3, cancelMessageOp}, {"end a turn", 3, endTurnOp},
		{"pass", 5, passTimeOp},
		{"expire", 3, expireOp}, {"sweep", 1, func(c *side) { c.Keeper().Sweep() }},
		{"pin", 2, pinOp}, {"retire", 2, retireOp}, {"register", 2, changeOp},
		{"draft", 3, draftOp}, {"read an output", 1, retrieveOp}, {"extraction", 2, extractionOp},
		{"budget", 3, budgetOp},
		{"fail", 2, failRowOp},
	}
}

// pairAgents are the agents of a program. desk and few have a lane for each conversation.
var pairAgents = []string{"clerk", "desk", "few", "asker"}

func (c *side) registerPair(agent string) {
	r := registration(agent, c.apart[agent])
	r.GiveUpAfter, r.Levels, r.DayTokens = 1000*time.Hour, pairLevels, 1<<40
	switch agent {
	case "few":
		r.Models, r.MaxRunning = []string{modelUsed}, 2
	case "asker":
		r.Models, r.GiveUpAfter = []string{modelUsed}, 90*time.Minute
	}
	c.Register(r)
}

var pairLevels = func() []byte {
	low, critical := 1, 500
	text, err := json.Marshal(maps.Collect(maps.All(survival.Rules{survival.Low: {MinPriority: &low},
		survival.Critical: {MinPriority: &critical}})))
	if err != nil {
		panic(err)
	}
	return text
}()

// tag returns a text for each step, and each of the things that it writes.
func (c *side) tag() string {
	c.tags++
	return fmt.Sprintf("s%d-%d", c.step, c.tags)
}

func (c *side) submission() turnkeeper.Submission {
	return turnkeeper.Submission{
		Agent: pick(c, "clerk", "desk", "desk", "few", "asker"), User: pick(c, "", "", "ann", "bob"),
		Conversation: pick(c, "", "a", "b"),
		Body:         "body " + c.tag(), Priority: pick(c, 0, 0, 0, 100, -1000, 1000),
	}
}

func sendOp(c *side) {
	m, when := c.submission(), ""
	switch c.choose(7) {
	case 1:
		m.DueAt, when = c.now.Add(30*time.Second), ", due in 30 s"
	case 2:
		m.DueAt, when = c.now.Add(10*time.Minute+10*time.Second), ", due in 10 min"
	case 3:
		m.Key, m.Body = "first", "the same"
	case 4:
		m.Key = "second"
	}
	id, err := c.Enqueue(c.Context(), m)
	c.says("to %s, user %q, conversation %q, key %q, priority %d%s: %s, %s", m.Agent, m.User, m.Conversation, m.Key,
		m.Priority, when, c.name(id), c.outcome(err))
}

// batches are numbers of turns: a store writes 64 at once, and a tick grants 100.
var batches = []int{3, 64, 65, 101, 130}

// sendManyOp sends messages to lanes of their own, more than a store writes at once.
func sendManyOp(c *side) {
	n := pick(c, batches...)
	for i := range n {
		_, err := c.Enqueue(c.Context(), turnkeeper.Submission{Agent: "desk", Conversation: fmt.Sprint("many ", i),
			Body: "one of many"})
		c.add("sent", err)
	}
	for range 2 {
		for _, worker := range []turnkeeper.WorkerID{first, second} {
			c.Beat(presence.Heartbeat{WorkerID: worker, Host: "h", Version: "v", Slots: 100, TakeoverAfter: takeover})
		}
		_, err := scheduler.New(scheduler.Config{Store: c.scheduler(), MaxDispatches: 100}).Tick(c.Context())
		c.add("tick", err)
	}
	c.says("%d messages to desk, and two ticks", n)
}

// one chooses a dispatch, which may have lost its grant.
func (c *side) one() *dispatch {
	if len(c.held) == 0 {
		return nil
	}
	return c.held[c.choose(min(len(c.held), 8))]
}

// drop forgets a dispatch that cannot write any more, mostly.
func (c *side) drop(d *dispatch) {
	if c.choose(4) > 0 {
		c.held = slices.DeleteFunc(c.held, func(other *dispatch) bool { return other == d })
	}
}

// writeManyOp writes one round to each of many turns at the same time, and ends them.
func writeManyOp(c *side) {
	many := slices.DeleteFunc(slices.Clone(c.held), func(d *dispatch) bool {
		return d.record.Message.Body != "one of many"
	})
	if len(many) == 0 {
		return
	}
	for _, entry := range []func(*dispatch) turnlog.Entry{
		func(d *dispatch) turnlog.Entry {
			return turnlog.Entry{Round: round(len(c.rounds(d))+1, turnkeeper.EffectNone),
				Events: events(turnkeeper.EventRoundStart)}
		},
		func(d *dispatch) turnlog.Entry {
			var e turnlog.Entry
			o := succeeded("one of many replies")
			e.Results, e.Outcome, e.Events = c.resultsFor(d, turnkeeper.CallCancelled), &o,
				events(turnkeeper.EventTurnComplete)
			return e
		},
	} {
		errs := make([]error, len(many))
		var group sync.WaitGroup
		for i, d := range many {
			e := entry(d)
			group.Go(func() { errs[i] = d.Append(c.Context(), e) })
		}
		group.Wait()
		c.add("errors", errs)
	}
	c.says("%d turns", len(many))
	c.held = slices.DeleteFunc(c.held, func(d *dispatch) bool { return slices.Contains(many, d) })
}

func endOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	e := turnlog.Entry{}
	what := pick(c, "succeeds", "ends silently", "fails", "fails for good", "is deferred", "is handed back",
		"is degraded", "is cancelled", "fails its model")
	if what == "fails its model" && !usesModel(d) {
		what = "fails"
	}
	switch what {
	case "fails", "fails for good", "succeeds", "ends silently", "is degraded", "is cancelled", "fails its model":
		e.Results = c.resultsFor(d, turnkeeper.CallCancelled)
	}
	e.Outcome = c.outcomeFor(d, what, &e)
	if e.Outcome.State != turnkeeper.TurnQueued {
		e.Events = events(turnkeeper.EventTurnComplete)
	}
	err := d.Append(c.Context(), e)
	c.says("%s %s: %s", c.name(d.grant.TurnID), what, c.outcome(err))
	if err == nil {
		wrote(c, d)
	}
	c.drop(d)
}

// usesModel reports whether the agent of a dispatch uses modelUsed.
func usesModel(d *dispatch) bool {
	return d.record.Turn.Agent == "few" || d.record.Turn.Agent == "asker"
}

func (c *side) outcomeFor(d *dispatch, what string, e *turnlog.Entry) *turnlog.Outcome {
	o := succeeded("done " + c.tag())
	switch what {
	case "ends silently":
		o = turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError,
			ErrorClass: "auth", Silent: true}
	case "fails":
		o = failedFor(105 * time.Second)
		o.ErrorClass = "overloaded"
	case "fails for good":
		o = failed(false)
	case "is deferred":
		o = turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "later", ErrorClass: "budget",
			Backoff: 10 * time.Minute}
	case "is handed back":
		o = turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "bye"}
	case "is degraded":
		o.State, o.StopReason, o.Error, o.ErrorClass = turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds,
			"too many", "bounds"
	case "is cancelled":
		o.State, o.StopReason = turnkeeper.TurnCancelled, turnkeeper.StopCancelled
	case "fails its model":
		e.ModelFailures = failuresOf(d.record)
		o = failed(true)
		o.WaitsFor, o.Backoff = []string{modelUsed}, 105*time.Second
	case "succeeds":
		e.Answered = []string{modelUsed}
	}
	return &o
}

func waitOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	o := turnlog.Outcome{State: turnkeeper.TurnWaiting}
	e := turnlog.Entry{Outcome: &o, Events: events(turnkeeper.EventTurnWaiting)}
	if usesModel(d) && c.choose(5) == 4 {
		o.WaitsFor, o.Backoff, e.ModelFailures = []string{modelUsed}, 10*time.Minute, failuresOf(d.record)
	}
	err := d.Append(c.Context(), e)
	c.says("%s, for %s: %s", c.name(d.grant.TurnID), o.WaitsFor, c.outcome(err))
	if err == nil {
		wrote(c, d)
	}
	c.drop(d)
}

// allAsks returns the asks of the newest turns.
func (c *side) allAsks() (all []asks.Ask) {
	_, turns := c.Keeper().Rows()
	for _, id := range slices.Backward(turns[max(0, len(turns)-40):]) {
		all = append(all, c.Asks(id)...)
	}
	return all
}

func answerOp(c *side) {
	all := c.allAsks()
	if open := slices.DeleteFunc(slices.Clone(all), asks.Ask.Closed); len(open) > 0 && c.choose(5) < 4 {
		all = open
	}
	if len(all) == 0 {
		return
	}
	ask := all[c.choose(len(all))]
	a := asks.Answer{Decision: ask.Kind.Takes(), By: pick(c, "ann", "bob"), Channel: pick(c, "test", "http"),
		Comment: pick(c, "", "fine")}
	what := pick(c, "yes", "yes, with a hash", "no", "with a wrong hash", "edited", "what does not fit")
	switch what {
	case "yes, with a hash":
		a.Hash = ask.Hash
	case "no":
		a.Decision = asks.Denied
	case "with a wrong hash":
		a.Hash = "wrong"
	case "edited":
		a.Edited = `{"amount":2}`
	case "what does not fit":
		a.Decision = pick(c, asks.Answered, asks.Approved, asks.Expired)
	}
	if a.Decision == asks.Answered {
		a.Answer = pick(c, asks.DidNotHappen, asks.Happened, asks.Unknown, "")
	}
	state, err := c.AnswerAsk(c.Context(), ask.ID, a)
	c.says("%s of %s, %s, %s, %s %s: %s, %s", c.name(ask.ID), c.name(ask.Turn), ask.Kind, what, a.Decision, a.Answer,
		state, c.outcome(err))
}

// message chooses one of the newest messages.
func (c *side) message() turnkeeper.MessageID {
	all, _ := c.Keeper().Rows()
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1-c.choose(min(len(all), 12))]
}

func cancelMessageOp(c *side) {
	id := c.message()
	turn, closed, err := c.CancelMessage(c.Context(), id)
	if err != nil {
		turn = 0
	}
	c.says("%s: turn %s, closed %v, %s", c.name(id), c.name(turn), closed, c.outcome(err))
}

func endTurnOp(c *side) {
	_, turns := c.Keeper().Rows()
	if len(turns) == 0 {
		return
	}
	id := turns[len(turns)-1-c.choose(min(len(turns), 12))]
	how := pick(c, turnlog.EndCancel, turnlog.EndFinish)
	closed, err := c.EndTurn(c.Context(), id, how)
	c.says("%s, %s: closed %v, %s", c.name(id), how, closed, c.outcome(err))
}

// passTimeOp lets time pass. All times that decide something are a multiple of 20 s, or further from one than a program
// takes.
func passTimeOp(c *side) {
	d := pick(c, 40*time.Second, 5*time.Minute, 20*time.Minute, 2*time.Hour)
	c.Pass(d)
	c.says("%s", d)
}

func expireOp(c *side) {
	class := pick(c, retention.Outputs, retention.Events, retention.Leases)
	kept := pick(c, 10*time.Minute, time.Hour)
	c.says("%s after %s: of %d turns", class, kept, c.Keeper().Expire(class, kept))
}

func pinOp(c *side) {
	agent, level := pick(c, "", "clerk", "desk"), pick(c, "", survival.Normal, survival.Low, survival.Critical)
	c.PinLevel(agent, level)
	c.says("%q to %q", agent, level)
}

func retireOp(c *side) {
	agent := pick(c, pairAgents...)
	c.retired[agent] = !c.retired[agent]
	c.Retire(agent, c.retired[agent])
	c.says("%s: %v", agent, c.retired[agent])
}

// changeOp changes an agent's lanes.
func changeOp(c *side) {
	agent := pick(c, pairAgents...)
	c.apart[agent] = !c.apart[agent]
	c.registerPair(agent)
	for range 2 { // until then, the messages wait in their old lanes
		c.beat(first, second)
		_, err := scheduler.New(scheduler.Config{Store: c.scheduler()}).Tick(c.Context())
		c.add("tick", err)
	}
	c.says("%s has a lane for each conversation: %v", agent, c.apart[agent])
}

func extractionOp(c *side) {
	_, turns := c.Keeper().Rows()
	if len(turns) == 0 {
		return
	}
	k := turnlog.ExtractionKey{SourceSHA256: strings.Repeat("ab", 32), Query: pick(c, "a", "b"),
		Model: pick(c, "m", "n"), Prompt: pick(c, 1, 2)}
	err := c.Extractions().KeepExtraction(c.Context(), turns[c.choose(len(turns))], k, []byte(`{"n":1}`))
	value, found, err2 := c.Extractions().FindExtraction(c.Context(), k)
	c.says("%+v: %s, %v %s %s", k, c.outcome(err), found, value, c.outcome(err2))
}

// retrieveOp counts that a turn has read an output.
func retrieveOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	for _, call := range c.callsIn(d, turnkeeper.CallSucceeded, turnkeeper.CallFailed) {
		if call.OutputID != "" {
			c.says("%s %s: %s", c.name(d.grant.TurnID), call.Key, c.outcome(c.Outputs().NoteRetrieved(c.Context(),
				d.grant.TurnID, call.OutputID)))
			return
		}
	}
}

func budgetOp(c *side) {
	_, turns := c.Keeper().Rows()
	if len(turns) == 0 {
		return
	}
	turn, _ := c.Turn(turns[c.choose(len(turns))])
	s := agentturn.Spender{Turn: turn.ID, Agent: turn.Agent, Limits: agentturn.SpendLimits{TurnTokens: 100,
		TurnCalls: 3, DayTokens: 1 << 40}}
	s.Level = pick(c, "", survival.Normal, survival.Low)
	if c.choose(2) == 1 {
		s.Root, s.Limits.TreeTokens, s.Limits.TreeCalls = turns[0], 200, 5
	}
	r, err := c.Budget().Reserve(c.Context(), s, turnkeeper.Usage{InputTokens: int64(pick(c, 10, 60)), OutputTokens: 5})
	c.says("%s, root %s, level %q: level %q, reserved %v, blocked %v %s %v, %s", c.name(s.Turn), c.name(s.Root),
		s.Level, r.Level, r.ID != 0, r.Blocked, r.Scope, r.Never, c.outcome(err))
	if r.ID != 0 && c.choose(3) > 0 {
		err = c.Budget().Settle(c.Context(), r, turnkeeper.Usage{InputTokens: int64(pick(c, 0, 7, 90))})
		c.says("settled: %s", c.outcome(err))
	}
}

// failRowOp makes a row fail in a tick.
func failRowOp(c *side) {
	row := asideMessage(c.message())
	if _, turns := c.Keeper().Rows(); len(turns) > 0 && c.choose(2) == 1 {
		row = asideTurn(turns[len(turns)-1-c.choose(min(len(turns), 5))])
	}
	c.Fail(row, true)
	tickOnceOp(c)
	tickOnceOp(c)
	c.Fail(row, false)
	c.says("%s", row.Kind)
}
