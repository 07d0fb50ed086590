package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/internal/memory"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

var toolNames = []string{"look", "put", "fire", "ask", "book", "send", "shoot"}

var effects = map[string]turnkeeper.Effect{
	"look": turnkeeper.EffectNone, "put": turnkeeper.EffectKeyed, "fire": turnkeeper.EffectOnce,
	"ask":  turnkeeper.EffectOnce,
	"book": turnkeeper.EffectOnce, "send": turnkeeper.EffectKeyed, "shoot": turnkeeper.EffectOnce,
}

// backgroundTools have effects, and their calls may move to the background.
var backgroundTools = []string{"put", "fire"}

// detachedTools are tools whose calls are detached.
var detachedTools = []string{"send", "shoot"}

// detachedTimeout is the timeout of a detached call, longer than that of a turn.
const detachedTimeout = 15 * time.Minute

// toolbox holds the tools of every process: one of each effect, one with Reconcile, one
// transactional, two detached, and those that read outputs and wait for them.
var toolbox = toolsWith(effects)

// toolsWith makes the tools with these declared effects and changes of their specs.
func toolsWith(effects map[string]turnkeeper.Effect, changes ...func(*tools.Spec)) *tools.Registry {
	var all []tools.Tool
	for _, name := range toolNames {
		t := &tool{spec: tools.Spec{
			Name: name, Description: "A tool of the simulation.", Effect: effects[name], Transactional: name == "book",
			Parameters: json.RawMessage(
				`{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}`),
		}}
		if slices.Contains(backgroundTools, name) {
			t.spec.Background = new(true)
		}
		if slices.Contains(detachedTools, name) {
			t.spec.Detached, t.spec.Timeout = true, detachedTimeout
		}
		for _, change := range changes {
			change(&t.spec)
		}
		if name == "ask" {
			all = append(all, reconciler{t})
		} else {
			all = append(all, t)
		}
	}
	registry, err := tools.NewRegistry(append(all, builtin.NewReaders()...)...)
	if err != nil {
		panic(err)
	}
	return registry
}

type tool struct{ spec tools.Spec }

func (t *tool) Spec() tools.Spec { return t.spec }

// Run records the run in the ledger, which outlives the process.
func (t *tool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	p := actorOf(ctx).p
	e := p.env
	a := e.actor(p, kindTool, uint64(call.TurnID), uint64(call.Key.Round), uint64(call.Key.Ordinal), uint64(p.n),
		uint64(e.ledger.tries(call.TurnID, call.Key)))
	a.apart()
	p.gate(a)
	k := callID{call.TurnID, call.Key}
	e.checkOrder(k, t.spec.Name)
	if t.spec.Transactional {
		memory.OnCommit(ctx, func() { e.ledger.book(k) })
		e.checkArguments(k, t.spec.Name, string(call.Arguments))
	} else {
		e.begin(k, t.spec.Effect)
		e.checkArguments(k, t.spec.Name, string(call.Arguments))
		if !t.spec.Detached && t.spec.Effect != turnkeeper.EffectNone {
			e.checkTime(p, k)
		}
	}
	e.note(p, "run "+t.spec.Name, call.Key.String(), int64(call.TurnID), 0)
	result, err := t.behave(ctx, a)
	if err == nil && e.profile.labels {
		result = t.label(result, call)
	}
	return result, err
}

// behave returns the tool's result, after a while; or it fails, hangs, panics or ignores its context.
func (t *tool) behave(ctx context.Context, a *actor) (tools.Result, error) {
	took := a.between(time.Millisecond, 2*time.Second)
	if a.env.isQuiet() {
		sleep(ctx, took)
		return tools.Result{Text: "done"}, nil
	}
	switch draw := a.Float64(); {
	case draw < 0.08:
		sleep(ctx, took)
		return tools.Result{}, errors.New("it failed on purpose")
	case draw < 0.11: // hangs until its timeout
		<-ctx.Done()
		return tools.Result{}, context.Cause(ctx)
	case draw < 0.14: // ignores its timeout
		time.Sleep(a.between(10*time.Second, 3*time.Minute))
	case t.spec.Detached && draw < 0.4:
		sleep(ctx, a.between(time.Minute, detachedTimeout))
	case draw < 0.25:
		sleep(ctx, a.between(2*time.Second, 58*time.Second))
	case draw < 0.27:
		panic("on purpose")
	default:
		sleep(ctx, took)
	}
	a.apart()
	a.p.gate(a)
	return tools.Result{Text: "done"}, nil
}

type reconciler struct{ *tool }

// Reconcile looks into the ledger.
func (r reconciler) Reconcile(ctx context.Context, call tools.Call) (tools.Result, bool, error) {
	a := actorOf(ctx)
	a.p.gate(a)
	if !sleep(ctx, a.lag()) || a.chance(0.2) {
		return tools.Result{}, false, errors.New("outcome unknown")
	}
	a.p.gate(a)
	return tools.Result{Text: "done"}, a.env.ledger.ran(callID{call.TurnID, call.Key}), nil
}

type callID struct {
	turn turnkeeper.TurnID
	key  turnkeeper.CallKey
}

// A ledger records what tools really did, outside of the system.
type ledger struct {
	mu       *sync.Mutex
	asked    map[callID]int    // runs, including transactional ones that may be rolled back
	runs     map[callID]int    // runs of tools that are not transactional
	booked   map[callID]int    // committed transactional effects
	approved map[callID]string // arguments that a person has approved; empty: none
	workers  map[turnkeeper.GrantID]turnkeeper.WorkerID
	working  map[turnkeeper.GrantID]bool // grants that are worked under now
}

func newLedger() ledger {
	return ledger{&sync.Mutex{}, map[callID]int{}, map[callID]int{}, map[callID]int{}, map[callID]string{},
		map[turnkeeper.GrantID]turnkeeper.WorkerID{}, map[turnkeeper.GrantID]bool{}}
}

// checkWorker checks that nobody else works or has worked under the grant of the turn. done ends the work.
func (e *env) checkWorker(p *process, turn turnkeeper.Turn) (done func()) {
	e.ledger.mu.Lock()
	first, known := e.ledger.workers[turn.GrantID]
	twice := e.ledger.working[turn.GrantID]
	e.ledger.workers[turn.GrantID], e.ledger.working[turn.GrantID] = p.id, true
	e.ledger.mu.Unlock()
	switch {
	case known && first != p.id:
		e.report("%s: turn %d under token %d, %s and %s", oneWorker, turn.ID, turn.Token, first, p.id)
	case twice:
		e.report("%s: turn %d under token %d, %s", twiceInAProcess, turn.ID, turn.Token, p.id)
	}
	return func() {
		e.ledger.mu.Lock()
		defer e.ledger.mu.Unlock()
		e.ledger.working[turn.GrantID] = false
	}
}

const (
	oneWorker       = "two workers worked under one grant"
	twiceInAProcess = "a worker ran a grant twice at the same time"
)

// tries counts the runs of a call, this one included.
func (l *ledger) tries(turn turnkeeper.TurnID, key turnkeeper.CallKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[callID{turn, key}]++
	return l.asked[callID{turn, key}]
}

func (l *ledger) book(k callID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.booked[k]++
}

func (l *ledger) ran(k callID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[k] > 0
}

// begin records a run and checks the invariants that hold when a run begins.
func (e *env) begin(k callID, effect turnkeeper.Effect) {
	if effect == turnkeeper.EffectNone {
		return
	}
	e.ledger.mu.Lock()
	e.ledger.runs[k]++
	runs := e.ledger.runs[k]
	e.ledger.mu.Unlock()
	if effect == turnkeeper.EffectOnce && runs > 1 {
		e.report("call %s of turn %d, of effect once, ran %d times", k.key, k.turn, runs)
	}
	if starts := e.store.Starts(k.turn, k.key); starts < runs {
		e.report("call %s of turn %d ran %d times with %d starts on record", k.key, k.turn, runs, starts)
	}
}

// checkOrder checks that a call with an effect begins only after every earlier effect of its answer
// has ended. The journal shows it: a result is written before, or with, the next start.
func (e *env) checkOrder(k callID, name string) {
	_, rounds, _, _ := e.store.Turn(k.turn)
	if effects[name] == turnkeeper.EffectNone || k.key.Round > len(rounds) {
		return
	}
	for _, before := range rounds[k.key.Round-1].Calls {
		if before.Key.Ordinal < k.key.Ordinal && hasEffect(before.Name) && !before.State.Answered() {
			e.report("call %s of turn %d began %s: %s is %s", k.key, k.turn, outOfOrder, before.Key, before.State)
		}
	}
}

const outOfOrder = "before the effect ahead of it had ended"

// hasEffect reports whether a tool has an effect or spawns a sub-agent, which may have one.
func hasEffect(name string) bool {
	effect, own := effects[name]
	return own && effect != turnkeeper.EffectNone || name == turnkeeper.ToolSpawnAgent
}

// checkArguments checks that a call runs as it is planned in the journal.
func (e *env) checkArguments(k callID, name, arguments string) {
	_, rounds, _, _ := e.store.Turn(k.turn)
	if k.key.Round > len(rounds) || k.key.Ordinal > len(rounds[k.key.Round-1].Calls) {
		e.report("call %s of turn %d runs, but %s", k.key, k.turn, notPlanned)
		return
	}
	e.checkApproved(k, name, rounds[k.key.Round-1].Calls[k.key.Ordinal-1].Arguments, arguments)
	if planned := rounds[k.key.Round-1].Calls[k.key.Ordinal-1]; planned.Name != name ||
		planned.Arguments != arguments && arguments != changed {
		e.report("call %s of turn %d runs as %s %s, but %s: %s %s", k.key, k.turn, name, arguments, notPlanned,
			planned.Name, planned.Arguments)
	}
}

const notPlanned = "the journal differs"

// checkTime checks that a call begins before its turn's deadline. It does not check where the
// process was stopped since the turn began, or where clocks are stepped.
func (e *env) checkTime(p *process, k callID) {
	if e.profile.clockSteps {
		return
	}
	turn, _, _, _ := e.store.Turn(k.turn)
	e.mu.Lock()
	d := p.running[turn.GrantID]
	undisturbed := d != nil && d.stops == p.stops
	e.mu.Unlock()
	const slack = 2 * time.Second // for the clock's drift and a delay at a fault point
	late := time.Since(turn.GrantedAt) - patient().MaxDuration
	if undisturbed && late > time.Duration(e.profile.drift*float64(patient().MaxDuration))+slack+stallTime {
		e.report("call %s of turn %d began %s after the time of its turn was over", k.key, k.turn, late)
	}
}

// stallTime is the maximum delay at a fault point.
const stallTime = 5 * time.Second

// checkLedger compares, at the end, what tools did with what the store says.
func (e *env) checkLedger() {
	turnOf := map[turnkeeper.MessageID]turnkeeper.TurnID{}
	effect := func(k callID) {
		turn, _, _, _ := e.store.Turn(k.turn)
		if first, ok := turnOf[turn.MessageID]; ok && first != k.turn {
			e.report("message %d had effects in turns %d and %d", turn.MessageID, first, k.turn)
		}
		turnOf[turn.MessageID] = k.turn
	}
	for k := range e.ledger.runs {
		effect(k)
	}
	for k, n := range e.ledger.booked {
		effect(k)
		if n != 1 {
			e.report("transactional call %s of turn %d happened %d times", k.key, k.turn, n)
		}
	}
	labels := e.store.Labels()
	for id := turnkeeper.TurnID(1); ; id++ {
		_, rounds, _, ok := e.store.Turn(id)
		if !ok {
			return
		}
		for _, round := range rounds {
			for _, call := range round.Calls {
				e.checkCall(callID{id, call.Key}, call)
				e.checkLabelled(labels, callID{id, call.Key}, call)
			}
		}
	}
}

func (e *env) checkCall(k callID, call turnkeeper.ToolCall) {
	runs, booked := e.ledger.runs[k], e.ledger.booked[k]
	says := fmt.Sprintf("call %s of turn %d (%s) is %s", k.key, k.turn, call.Name, call.State)
	happened := runs+booked > 0
	switch call.State {
	case turnkeeper.CallSucceeded:
		if !happened && call.Effect != turnkeeper.EffectNone && call.Name != turnkeeper.ToolSpawnAgent {
			e.report("%s, but it never ran", says)
		}
	case turnkeeper.CallSkipped, turnkeeper.CallDenied:
		if happened && call.Starts == 0 {
			e.report("%s, but it ran", says)
		}
	default:
	}
	if booked > 0 && call.State != turnkeeper.CallSucceeded {
		e.report("%s, but its transaction is committed", says)
	}
}
