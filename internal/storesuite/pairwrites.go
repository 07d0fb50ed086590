package storesuite

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/asks"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A part of an entry: it adds something to it that fits the turn, and mostly is allowed.
type entryPart struct {
	name string
	add  func(c *side, d *dispatch, e *turnlog.Entry)
}

var entryParts = []entryPart{
	{"a round", addRound}, {"a round", addRound}, {"a round", addRound},
	{"a start", addStart}, {"a start", addStart},
	{"results", addResult}, {"results", addResult},
	{"a call goes to the background", addBackground}, {"a detached call", addDetached}, {"a sub-agent", addSpawn},
	{"a verdict", addVerdict},
	{"an ask", addAsk}, {"an ask", addAsk}, {"what was decided", addSeen}, {"a start with an ask", addAllowed},
	{"a start with an ask", addAllowed},
	{"withdrawn", addWithdrawn}, {"a gate", addGate},
	{"labels", func(c *side, _ *dispatch, e *turnlog.Entry) {
		e.Labels = pick(c, []policy.Mark{private}, []policy.Mark{private, untrusted})
	}},
	{"failed requests", addFailed},
	{"health", addHealth},
}

// rounds returns the rounds of a dispatch's turn as its worker knows them: after it has lost the grant, it learns
// nothing of what others write.
func (c *side) rounds(d *dispatch) []turnkeeper.Round {
	turn, rounds := c.Turn(d.grant.TurnID)
	if turn.State == turnkeeper.TurnRunning && turn.GrantID == d.grant.GrantID {
		d.record.Rounds = rounds
	}
	return d.record.Rounds
}

// wrote notes that the worker of a dispatch knows what is in the journal.
func wrote(c *side, d *dispatch) { _, d.record.Rounds = c.Turn(d.grant.TurnID) }

// callsIn returns the calls of the turn in one of the states, newest first.
func (c *side) callsIn(d *dispatch, states ...turnkeeper.CallState) (all []turnkeeper.ToolCall) {
	for _, r := range slices.Backward(c.rounds(d)) {
		for _, call := range r.Calls {
			if slices.Contains(states, call.State) {
				all = append(all, call)
			}
		}
	}
	return all
}

// callIn chooses one of the newest calls in one of the states.
func (c *side) callIn(d *dispatch, states ...turnkeeper.CallState) (call turnkeeper.ToolCall, ok bool) {
	all := c.callsIn(d, states...)
	if len(all) == 0 {
		return call, false
	}
	return all[c.choose(min(len(all), 3))], true
}

// untouched is callIn without the calls that the entry has starts or results of. A worker writes each step of a call by
// itself, and its journal refuses another entry before it has read the turn.
func untouched(c *side, d *dispatch, e *turnlog.Entry, states ...turnkeeper.CallState) (turnkeeper.ToolCall, bool) {
	all := slices.DeleteFunc(c.callsIn(d, states...), func(call turnkeeper.ToolCall) bool {
		return touches(e, call.Key)
	})
	if len(all) == 0 {
		return turnkeeper.ToolCall{}, false
	}
	return all[c.choose(min(len(all), 3))], true
}

func touches(e *turnlog.Entry, key turnkeeper.CallKey) bool {
	ofCall := func(r turnlog.CallResult) bool { return r.Key == key }
	return slices.ContainsFunc(e.Starts, func(s turnlog.CallStart) bool { return s.Key == key }) ||
		slices.ContainsFunc(e.Results, ofCall) || slices.ContainsFunc(e.Verdicts, ofCall)
}

// needsApproval reports whether the turn or the entry has an approval request for a call.
func needsApproval(c *side, d *dispatch, e *turnlog.Entry, key turnkeeper.CallKey) bool {
	return slices.ContainsFunc(c.Asks(d.grant.TurnID), func(a asks.Ask) bool {
		return a.Kind == asks.KindApprove && a.Call == key
	}) || slices.ContainsFunc(e.Asks, func(q asks.Question) bool { return q.Kind == asks.KindApprove && q.Call == key })
}

// resultsFor returns results for all open calls.
func (c *side) resultsFor(d *dispatch, state turnkeeper.CallState) (all []turnlog.CallResult) {
	for _, call := range c.callsIn(d, turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning) {
		all = append(all, result(call.Key, call.Nonce, state, "ended"))
	}
	return all
}

// entry composes a write: an entry of up to three parts, and sometimes further rounds that go with it.
func (c *side) entry(d *dispatch) (e turnlog.Entry, what string) {
	var names []string
	for range 1 + c.choose(2) {
		for range 4 { // most parts need something in the turn that they continue
			part, before := entryParts[c.choose(len(entryParts))], sizeOf(e)
			if part.add(c, d, &e); sizeOf(e) > before {
				names = append(names, part.name)
				break
			}
		}
	}
	if n := c.choose(4); n > 0 {
		e.Events = events([]turnkeeper.EventType{turnkeeper.EventRoundStart, turnkeeper.EventToolStarted,
			turnkeeper.EventToolResult}[:n]...)
	}
	for c.choose(4) == 3 {
		e = further(c, d, e)
		names = append(names, "a further round")
	}
	return e, strings.Join(names, ", ")
}

// further adds an entry to a write: a round, and results of the round before.
func further(c *side, d *dispatch, e turnlog.Entry) turnlog.Entry {
	next, number := turnlog.Entry{Earlier: e.Sequence()}, len(c.rounds(d))
	for _, part := range next.Earlier {
		if part.Round != nil {
			number = part.Round.Number
		}
	}
	if e.Round != nil {
		for _, call := range e.Round.Calls {
			if call.Effect == turnkeeper.EffectNone && call.State == turnkeeper.CallPlanned && c.choose(3) > 0 {
				next.Results = append(next.Results, result(call.Key, "", turnkeeper.CallSucceeded, "read "+c.tag()))
			}
		}
	}
	addRoundOf(c, d, &next, number+1)
	next.Events = events([]turnkeeper.EventType{turnkeeper.EventToolResult,
		turnkeeper.EventRoundStart}[:c.choose(3)]...)
	return next
}

// sizeOf returns the number of things in an entry.
func sizeOf(e turnlog.Entry) (n int) {
	v := reflect.ValueOf(e)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice {
			n += f.Len()
		} else if !f.IsZero() {
			n++
		}
	}
	return n
}

func writeOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	e, what := c.entry(d)
	c.written(d, what, d.Append(c.Context(), e))
}

func (c *side) written(d *dispatch, what string, err error) {
	c.says("%s: %s: %s", c.name(d.grant.TurnID), what, c.outcome(err))
	if err != nil {
		c.drop(d)
		return
	}
	wrote(c, d)
}

// writeCutOp loses the write, or the answer to it, so that it is sent again.
func writeCutOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	e, what := c.entry(d)
	done := c.choose(2) == 0
	c.CutNext(done)
	c.written(d, fmt.Sprintf("%s, done before it is cut: %v", what, done), d.Append(c.Context(), e))
}

func addRound(c *side, d *dispatch, e *turnlog.Entry) {
	if e.Round == nil {
		addRoundOf(c, d, e, len(c.rounds(d))+1)
	}
}

func addRoundOf(c *side, d *dispatch, e *turnlog.Entry, number int) {
	effects := [][]turnkeeper.Effect{
		{turnkeeper.EffectOnce}, {turnkeeper.EffectNone, turnkeeper.EffectKeyed}, {turnkeeper.EffectKeyed,
			turnkeeper.EffectOnce, turnkeeper.EffectNone}, {},
	}[c.choose(4)]
	r := round(number, effects...)
	tag := c.tag()
	r.Charged, r.Latency, r.Usage = c.choose(3) > 0, 10*time.Minute, turnkeeper.Usage{InputTokens: 10, OutputTokens: 5,
		CachedTokens: 2, CacheWriteTokens: 3, ReasoningTokens: 1}
	r.Text, r.Reasoning, r.Raw = "text "+tag, "reasoning "+tag, []byte(`{"raw":1}`)
	for i := range r.Calls {
		r.Calls[i].Arguments, r.Calls[i].ArgsHash, r.Calls[i].ProviderID, r.Calls[i].RawArgs = askArguments,
			tools.Hash("tool", askArguments), "p"+tag, `{"amount": 1}`
	}
	if len(r.Calls) > 1 {
		switch c.choose(4) {
		case 1:
			r.Calls[1].Paging = true
		case 2:
			r.Calls[1].State, r.Calls[1].Shown = turnkeeper.CallDenied, turnlog.Denied+turnlog.RefusedOverLimit
		case 3:
			r.Calls[1].State, r.Calls[1].Shown = turnkeeper.CallSkipped, "repeated"
		}
	}
	frame, toolset := turnlog.NewRequestPart(tag), turnlog.NewRequestPart("tools")
	r.Recipe = &turnkeeper.Recipe{Version: 1, Provider: "p", Model: "m", Notice: "notice",
		Start: &turnkeeper.Epoch{System: frame.SHA256, Tools: toolset.SHA256}}
	e.Round, e.Parts = r, []turnlog.RequestPart{frame, toolset}
	c.parts = append(c.parts, frame.SHA256)
	if past := d.record.History; len(past) > 0 && c.choose(4) == 3 {
		e.Summary = &turnlog.Summary{UpTo: past[len(past)-1].TurnID, Text: "summary " + tag,
			Labels: []policy.Mark{untrusted}}
	}
}

// startOf returns the next start of a call. A later one runs the same arguments.
func (c *side) startOf(call turnkeeper.ToolCall) turnlog.CallStart {
	s := turnlog.CallStart{Key: call.Key, Nonce: c.tag(), Attempt: call.Starts + 1, Effect: call.Effect}
	if call.RunArgs != "" {
		s.RunArgs, s.ArgsHash = call.RunArgs, call.ArgsHash
	}
	return s
}

func addStart(c *side, d *dispatch, e *turnlog.Entry) {
	if call, ok := untouched(c, d, e, turnkeeper.CallPlanned, turnkeeper.CallStarted); ok {
		s := c.startOf(call)
		if c.choose(4) == 3 && call.Starts == 0 {
			s.RunArgs = `{"amount":3}`
			s.ArgsHash = tools.Hash("tool", s.RunArgs)
		}
		e.Starts = append(e.Starts, s)
	}
}

func addResult(c *side, d *dispatch, e *turnlog.Entry) {
	call, ok := untouched(c, d, e, turnkeeper.CallStarted, turnkeeper.CallPlanned, turnkeeper.CallRunning)
	if !ok {
		return
	}
	tag, state := c.tag(), pick(c, turnkeeper.CallSucceeded, turnkeeper.CallFailed, turnkeeper.CallCancelled,
		turnkeeper.CallDenied)
	// else a store keeps an effect, or what a person has not approved, without its start
	if call.Starts == 0 && (call.Effect != turnkeeper.EffectNone || needsApproval(c, d, e, call.Key)) {
		state = turnkeeper.CallDenied
	}
	r := result(call.Key, call.Nonce, state, "shown "+tag)
	r.Duration, r.Usage = 20*time.Minute, turnkeeper.Usage{InputTokens: 1, OutputTokens: 2}
	if c.choose(2) == 0 {
		r.Output = &turnkeeper.Output{
			ID: turnkeeper.OutputID("out " + tag), TurnID: d.grant.TurnID, Call: call.Key, MediaType: "text/plain",
			Text:      "öutput " + tag,
			SizeBytes: 8, RawBytes: 9, Chars: 7, Tokens: 2, SHA256: strings.Repeat("cd", 32),
		}
	}
	switch c.choose(4) {
	case 1:
		r.Labels = []policy.Mark{untrusted}
	case 2:
		r = with(r, turnkeeper.OutputID("dot "+tag))
	}
	e.Results = append(e.Results, r)
}

func addBackground(c *side, d *dispatch, e *turnlog.Entry) {
	if call, ok := untouched(c, d, e, turnkeeper.CallStarted); ok {
		r := result(call.Key, call.Nonce, turnkeeper.CallRunning, "a handle")
		r.OutputID = turnkeeper.OutputID("later " + c.tag())
		e.Results = append(e.Results, r)
	}
}

func addDetached(c *side, d *dispatch, e *turnlog.Entry) {
	if call, ok := untouched(c, d, e, turnkeeper.CallPlanned); ok {
		s := c.startOf(call)
		s.Detached = pick(c, time.Hour, 30*time.Minute)
		r := result(call.Key, s.Nonce, turnkeeper.CallRunning, "a handle")
		r.OutputID = turnkeeper.OutputID("detached " + s.Nonce)
		e.Starts, e.Results = append(e.Starts, s), append(e.Results, r)
	}
}

func addSpawn(c *side, d *dispatch, e *turnlog.Entry) {
	call, ok := untouched(c, d, e, turnkeeper.CallPlanned)
	if !ok || len(d.record.Lineage.Agents) > 2 {
		return
	}
	start, handle := d.spawnOf(call.Key, pick(c, "desk", "clerk", "nobody"), "sub "+c.tag())
	start.Nonce, start.Effect, start.Attempt = c.tag(), call.Effect, call.Starts+1
	handle.Nonce = start.Nonce
	start.Spawn.Labels = policy.Join(marks(c, d), pick(c, nil, []policy.Mark{private}))
	start.Spawn.Within = pick(c, time.Hour, 10*time.Minute)
	e.Starts, e.Results = append(e.Starts, start), append(e.Results, handle)
}

// marks returns all labels of a dispatch's turn, which a task for a sub-agent has too.
func marks(c *side, d *dispatch) (all []policy.Mark) {
	record, err := c.Load(c.Context(), d.grant.TurnID, d.grant.GrantID)
	if err != nil { // it has lost the grant
		return nil
	}
	all = record.Labels.Before
	for _, r := range record.Rounds {
		for _, call := range r.Calls {
			all = policy.Join(all, record.Labels.Calls[call.Key])
		}
	}
	return all
}

func addVerdict(c *side, d *dispatch, e *turnlog.Entry) {
	if call, ok := untouched(c, d, e, turnkeeper.CallStarted, turnkeeper.CallRunning); ok {
		e.Verdicts = append(e.Verdicts, result(call.Key, "", turnkeeper.CallUnknown, "unknown"))
	}
}

func addAsk(c *side, d *dispatch, e *turnlog.Entry) {
	call, ok := c.callIn(d, turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallUnknown)
	if !ok {
		return
	}
	q := question(call.Key, pick(c, asks.KindApprove, asks.KindApprove, asks.KindQuestion, asks.KindInput,
		asks.KindSettle))
	if q.Kind == asks.KindApprove && call.State != turnkeeper.CallPlanned {
		q.Kind = asks.KindQuestion // a call that was started without an approval needs none
	}
	for _, a := range c.Asks(d.grant.TurnID) {
		if a.Kind == q.Kind && a.Call == q.Call {
			q.N++
		}
	}
	q.Hold, q.Timeout = c.choose(2) == 0, pick(c, time.Hour, 10*time.Minute)
	q.Audience = pick(c, nil, []string{"ann"})
	if len(e.Asks) > 0 {
		q.Terms = e.Asks[0].Terms // see asks.Terms: an agent has one setting for all its asks
	}
	e.Asks = append(e.Asks, q)
	// what reads only is answered without a start, too
	if q.Kind == asks.KindApprove && call.Effect != turnkeeper.EffectNone {
		e.Gates = append(e.Gates, call.Key)
	}
}

func addSeen(c *side, d *dispatch, e *turnlog.Entry) {
	for _, a := range c.Asks(d.grant.TurnID) {
		if a.Closed() && !a.Seen {
			e.Seen = append(e.Seen, a.ID)
		}
		if a.Closed() && a.Kind == asks.KindInput && !a.Used && len(e.Inputs) == 0 {
			e.Inputs = append(e.Inputs, a.ID)
		}
	}
}

// addAllowed starts a call with the newest ask about it, whatever its answer.
func addAllowed(c *side, d *dispatch, e *turnlog.Entry) {
	all := c.Asks(d.grant.TurnID)
	if len(all) == 0 {
		return
	}
	ask := all[len(all)-1-c.choose(min(3, len(all)))]
	for _, call := range c.callsIn(d, turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallUnknown) {
		if call.Key != ask.Call || touches(e, call.Key) {
			continue
		}
		s := c.startOf(call)
		s.Ask, s.Hash = ask.ID, ask.RunHash()
		if ask.Edited != "" {
			s.RunArgs, s.ArgsHash = ask.Edited, ask.EditedHash
		}
		e.Starts = append(e.Starts, s)
		return
	}
}

func addWithdrawn(c *side, d *dispatch, e *turnlog.Entry) {
	for _, a := range c.Asks(d.grant.TurnID) {
		if !a.Closed() {
			e.Withdrawn = append(e.Withdrawn, a.Call)
			return
		}
	}
}

func addGate(c *side, d *dispatch, e *turnlog.Entry) {
	if call, ok := c.callIn(d, turnkeeper.CallPlanned); ok && call.Effect != turnkeeper.EffectNone {
		e.Gates = append(e.Gates, call.Key)
	}
}

func addFailed(c *side, d *dispatch, e *turnlog.Entry) {
	e.Failed = append(e.Failed, turnlog.FailedAttempt{
		Round: len(c.rounds(d)) + 1, Attempt: 1, Provider: "script", Model: "m", Class: "overloaded",
		Error: "busy", Text: "half",
		Latency: 10 * time.Minute, Usage: turnkeeper.Usage{InputTokens: 9, Estimated: true},
	})
}

func failuresOf(r *turnlog.Record) []modelhealth.Failure {
	seen := 0
	for _, h := range r.Down {
		seen = h.Failures
	}
	return []modelhealth.Failure{{Model: modelUsed, Seen: seen, ErrorClass: "overloaded", Error: "unavailable",
		RetryAfter: 10 * time.Minute}}
}

func addHealth(c *side, d *dispatch, e *turnlog.Entry) {
	switch pick(c, "answered", "probed", "refused", "failed") {
	case "answered":
		e.Answered = []string{modelUsed}
	case "probed":
		e.Probed = []string{modelUsed}
	case "refused":
		e.Refused = []string{modelUsed}
	case "failed":
		if usesModel(d) {
			e.ModelFailures = failuresOf(d.record)
		}
	}
}

func transactOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	call, ok := c.callIn(d, turnkeeper.CallPlanned)
	if !ok {
		return
	}
	s, state := c.startOf(call), pick(c, turnkeeper.CallSucceeded, turnkeeper.CallFailed)
	if c.choose(4) == 3 {
		c.CutNext(false)
	}
	r, err := d.Transact(c.Context(), s, time.Minute, func(ctx context.Context) turnlog.CallResult {
		c.Effect(ctx, "effect "+s.Nonce)
		return result(call.Key, s.Nonce, state, "transacted")
	})
	c.add("transacted", r)
	c.written(d, fmt.Sprintf("%s %s", call.Key, state), err)
}

func lateOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	call, ok := c.callIn(d, turnkeeper.CallStarted, turnkeeper.CallRunning, turnkeeper.CallUnknown)
	if !ok {
		return
	}
	r := result(call.Key, call.Nonce, turnkeeper.CallSucceeded, "late "+c.tag())
	if c.choose(3) == 2 {
		r = labelled(with(r, turnkeeper.OutputID("late "+c.tag())), untrusted)
	}
	c.says("%s %s, %s: %s", c.name(d.grant.TurnID), call.Key, call.State, c.outcome(d.Late(c.Context(), r)))
}

// arrivalsOp reads what has arrived for a turn, and mostly writes it.
func arrivalsOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	all, err := d.Arrivals(c.Context())
	c.add("arrivals", all)
	if len(all) == 0 || err != nil || c.choose(4) == 3 {
		return
	}
	for i := range all {
		all[i].Shown = "arrived " + c.tag()
	}
	c.written(d, fmt.Sprintf("%d results", len(all)), d.Append(c.Context(), turnlog.Entry{Results: all}))
}

// draftOp writes a result in parts, and mostly records or drops it.
func draftOp(c *side) {
	d := c.one()
	if d == nil {
		return
	}
	drafts, ok := d.Journal.(toolrun.Drafts)
	if !ok {
		c.Fatal("the journal stores no drafts")
	}
	id := turnkeeper.OutputID("draft " + c.tag())
	err := drafts.WriteDraft(c.Context(), turnlog.OutputPart{Output: id, Text: "first, "})
	c.add("the first part", err)
	err = drafts.WriteDraft(c.Context(), turnlog.OutputPart{Output: id, FirstByte: 7, FirstChar: 7, Text: "second"})
	c.add("the second part", err)
	call, open := c.callIn(d, turnkeeper.CallPlanned)
	switch {
	case open && call.Effect == turnkeeper.EffectNone && !needsApproval(c, d, &turnlog.Entry{}, call.Key):
		r := result(call.Key, "", turnkeeper.CallSucceeded, "drafted")
		r.Output = &turnkeeper.Output{ID: id, TurnID: d.grant.TurnID, Call: call.Key, MediaType: "text/plain",
			Drafted: true, SizeBytes: 13, RawBytes: 13, Chars: 13, Tokens: 3, SHA256: strings.Repeat("ef", 32)}
		c.written(d, "a draft", d.Append(c.Context(), turnlog.Entry{Results: []turnlog.CallResult{r}}))
	case c.choose(2) == 0:
		c.says("dropped: %s", c.outcome(drafts.DropDraft(c.Context(), id)))
	}
}
