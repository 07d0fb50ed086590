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
	"look": turnkeeper.EffectNone, "put": turnkeeper.EffectKeyed, "fire": turnkeeper.EffectOnce, "ask": turnkeeper.EffectOnce,
	"book": turnkeeper.EffectOnce, "send": turnkeeper.EffectKeyed, "shoot": turnkeeper.EffectOnce,
}

// laterTools have effects, and their calls may go on in the background.
var laterTools = []string{"put", "fire"}

// farTools run apart from their turns.
var farTools = []string{"send", "shoot"}

// farTime is how long one run of them may take: longer than a turn may.
const farTime = 15 * time.Minute

// toolbox holds the tools of every process: one of each effect, one that can look
// up what happened, one that is transactional, two that are detached, and those
// that read outputs and wait for them.
var toolbox = toolsWith(effects)

// toolsWith makes the tools, with effects as they are told to the product.
func toolsWith(effects map[string]turnkeeper.Effect) *tools.Registry {
	var all []tools.Tool
	for _, name := range toolNames {
		t := &tool{spec: tools.Spec{
			Name: name, Description: "A tool of the simulation.", Effect: effects[name], Transactional: name == "book",
			Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}`),
		}}
		if slices.Contains(laterTools, name) {
			t.spec.Background = new(true)
		}
		if slices.Contains(farTools, name) {
			t.spec.Detached, t.spec.Timeout = true, farTime
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

// Run happens outside: the ledger has it, whatever becomes of the process.
func (t *tool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	p := actorOf(ctx).p
	w := p.w
	a := w.actor(p, kindTool, uint64(call.TurnID), uint64(call.Key.Round), uint64(call.Key.Ordinal), uint64(p.n),
		uint64(w.ledger.tries(call.TurnID, call.Key)))
	a.apart()
	p.gate(a)
	k := callID{call.TurnID, call.Key}
	w.checkOrder(k, t.spec.Name)
	if t.spec.Transactional {
		memory.OnCommit(ctx, func() { w.ledger.book(k) })
	} else {
		w.begin(k, t.spec.Effect)
		w.checkArguments(k, t.spec.Name, string(call.Arguments))
		if !t.spec.Detached && t.spec.Effect != turnkeeper.EffectNone {
			w.checkTime(p, k)
		}
	}
	w.note(p, "run "+t.spec.Name, call.Key.String(), int64(call.TurnID), 0)
	return t.behave(ctx, a)
}

// behave is what a tool does to its caller.
func (t *tool) behave(ctx context.Context, a *actor) (tools.Result, error) {
	took := a.between(time.Millisecond, 2*time.Second)
	if a.w.isCalm() {
		sleep(ctx, took)
		return tools.Result{Text: "done"}, nil
	}
	switch draw := a.Float64(); {
	case draw < 0.08:
		sleep(ctx, took)
		return tools.Result{}, errors.New("it failed on purpose")
	case draw < 0.11: // hangs until its time is over
		<-ctx.Done()
		return tools.Result{}, context.Cause(ctx)
	case draw < 0.14: // ignores the end of its time
		time.Sleep(a.between(10*time.Second, 3*time.Minute))
	case t.spec.Detached && draw < 0.4:
		sleep(ctx, a.between(time.Minute, farTime))
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
		return tools.Result{}, false, errors.New("nobody can tell")
	}
	a.p.gate(a)
	return tools.Result{Text: "done"}, a.w.ledger.ran(callID{call.TurnID, call.Key}), nil
}

type callID struct {
	turn turnkeeper.TurnID
	key  turnkeeper.CallKey
}

// A ledger is kept outside of the system: what tools really did.
type ledger struct {
	mu      *sync.Mutex
	asked   map[callID]int // runs begun, and transactional ones that may be undone
	runs    map[callID]int // of effects that are not transactional
	booked  map[callID]int // transactional effects that happened
	workers map[turnkeeper.GrantID]turnkeeper.WorkerID
}

func newLedger() ledger {
	return ledger{&sync.Mutex{}, map[callID]int{}, map[callID]int{}, map[callID]int{}, map[turnkeeper.GrantID]turnkeeper.WorkerID{}}
}

// checkWorker says that nobody else works, or has worked, under the grant of a
// turn that a process is about to work.
func (w *world) checkWorker(p *process, turn turnkeeper.Turn) {
	w.ledger.mu.Lock()
	first, known := w.ledger.workers[turn.GrantID]
	w.ledger.workers[turn.GrantID] = p.id
	w.ledger.mu.Unlock()
	if known && first != p.id {
		w.violated("%s: turn %d under token %d, %s and %s", oneWorker, turn.ID, turn.Token, first, p.id)
	}
}

const oneWorker = "two workers worked under one grant"

// tries counts how often a call's tool was entered.
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

// begin writes a run down, and checks what must be true when one begins.
func (w *world) begin(k callID, effect turnkeeper.Effect) {
	if effect == turnkeeper.EffectNone {
		return
	}
	w.ledger.mu.Lock()
	w.ledger.runs[k]++
	runs := w.ledger.runs[k]
	w.ledger.mu.Unlock()
	if effect == turnkeeper.EffectOnce && runs > 1 {
		w.violated("call %s of turn %d, of effect once, ran %d times", k.key, k.turn, runs)
	}
	if starts := w.store.Starts(k.turn, k.key); starts < runs {
		w.violated("call %s of turn %d ran %d times with %d starts on record", k.key, k.turn, runs, starts)
	}
}

// checkOrder says that a call with an effect begins when every one before it in its answer
// has ended. The journal knows that: what a call ended with is written before, or with,
// the next start.
func (w *world) checkOrder(k callID, name string) {
	_, rounds, _, _ := w.store.Turn(k.turn)
	if effects[name] == turnkeeper.EffectNone || k.key.Round > len(rounds) {
		return
	}
	for _, before := range rounds[k.key.Round-1].Calls {
		if before.Key.Ordinal < k.key.Ordinal && hasEffect(before.Name) && !before.State.Answered() {
			w.violated("call %s of turn %d began %s: %s is %s", k.key, k.turn, outOfOrder, before.Key, before.State)
		}
	}
}

const outOfOrder = "before the effect ahead of it had ended"

// hasEffect says that a tool has an effect, or gives work to a sub-agent that may have one.
func hasEffect(name string) bool {
	effect, own := effects[name]
	return own && effect != turnkeeper.EffectNone || name == turnkeeper.ToolSpawnAgent
}

// checkArguments says that a call runs as the journal has it: it is planned
// there before it begins.
func (w *world) checkArguments(k callID, name, arguments string) {
	_, rounds, _, _ := w.store.Turn(k.turn)
	if k.key.Round > len(rounds) || k.key.Ordinal > len(rounds[k.key.Round-1].Calls) {
		w.violated("call %s of turn %d runs, and %s", k.key, k.turn, notPlanned)
		return
	}
	if planned := rounds[k.key.Round-1].Calls[k.key.Ordinal-1]; planned.Name != name || planned.Arguments != arguments {
		w.violated("call %s of turn %d runs as %s %s, and %s: %s %s", k.key, k.turn, name, arguments, notPlanned, planned.Name, planned.Arguments)
	}
}

const notPlanned = "the journal has it otherwise"

// checkTime says that a call begins in its turn's time, unless its process was
// stopped between the last look at the clock and the call, or nobody can tell.
func (w *world) checkTime(p *process, k callID) {
	if w.profile.clockSteps {
		return
	}
	turn, _, _, _ := w.store.Turn(k.turn)
	w.mu.Lock()
	d := p.running[turn.GrantID]
	undisturbed := d != nil && d.stops == p.stops
	w.mu.Unlock()
	const slack = 2 * time.Second // the clock's drift, and a point of the turn that takes its time
	late := time.Since(turn.GrantedAt) - bounds().MaxDuration
	if undisturbed && late > time.Duration(w.profile.drift*float64(bounds().MaxDuration))+slack+stallTime {
		w.violated("call %s of turn %d began %s after the time of its turn was over", k.key, k.turn, late)
	}
}

// stallTime is how long a process may stand at a point, at most.
const stallTime = 5 * time.Second

// checkLedger holds what tools did against what the store says, in the end.
func (w *world) checkLedger() {
	turnOf := map[turnkeeper.MessageID]turnkeeper.TurnID{}
	effect := func(k callID) {
		turn, _, _, _ := w.store.Turn(k.turn)
		if first, ok := turnOf[turn.MessageID]; ok && first != k.turn {
			w.violated("message %d had effects in turns %d and %d", turn.MessageID, first, k.turn)
		}
		turnOf[turn.MessageID] = k.turn
	}
	for k := range w.ledger.runs {
		effect(k)
	}
	for k, n := range w.ledger.booked {
		effect(k)
		if n != 1 {
			w.violated("transactional call %s of turn %d happened %d times", k.key, k.turn, n)
		}
	}
	for id := turnkeeper.TurnID(1); ; id++ {
		_, rounds, _, ok := w.store.Turn(id)
		if !ok {
			return
		}
		for _, round := range rounds {
			for _, call := range round.Calls {
				w.checkCall(callID{id, call.Key}, call)
			}
		}
	}
}

func (w *world) checkCall(k callID, call turnkeeper.ToolCall) {
	runs, booked := w.ledger.runs[k], w.ledger.booked[k]
	says := fmt.Sprintf("call %s of turn %d (%s) is %s", k.key, k.turn, call.Name, call.State)
	happened := runs+booked > 0
	switch call.State {
	case turnkeeper.CallSucceeded:
		if !happened && call.Effect != turnkeeper.EffectNone && call.Name != turnkeeper.ToolSpawnAgent {
			w.violated("%s, and it never ran", says)
		}
	case turnkeeper.CallSkipped, turnkeeper.CallDenied:
		if happened && call.Starts == 0 {
			w.violated("%s, and it ran", says)
		}
	default:
	}
	if booked > 0 && call.State != turnkeeper.CallSucceeded {
		w.violated("%s, and its transaction has happened", says)
	}
}
