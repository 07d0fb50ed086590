package turnkeepertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/memory"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// A world is one run: a store, the workers that use it one after the other, and what was
// observed of them.
type world struct {
	scenario Scenario
	agent    *agentdef.Definition
	tools    *tools.Registry
	model    *model
	store    *memory.Store
	conn     *memory.Conn // connection of the sender of the messages
	takeover time.Duration
	patience time.Duration
	began    time.Time
	changed  chan struct{}  // signals an event that the sender may wait for
	life     sync.WaitGroup // counts the goroutines of all workers

	mu        sync.Mutex
	processes []*process
	over      bool
	faults    []Fault
	struck    []bool // by index in faults
	passed    map[string]int
	points    []Point // passed, in order
	writes    []Point // done, in order
	sent      []turnkeeper.MessageID
	runs      map[callOf]*runs
	callOrder []callOf
	problems  []string
	trace     []string
}

// A callOf identifies a call of the run.
type callOf struct {
	turn turnkeeper.TurnID
	key  turnkeeper.CallKey
}

// runs records what tools did for one call.
type runs struct {
	spec    tools.Spec
	begun   map[int]int // by the number of the input that the run got; 0: none
	settled int         // how often a person has decided that the call did not happen
	effects []Effect
}

func newWorld(s Scenario, faults []Fault) (*world, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	w := &world{
		scenario: s, faults: faults, struck: make([]bool, len(faults)), began: time.Now(),
		changed:  make(chan struct{}, 1),
		takeover: s.span(s.TakeoverAfter, fakeTakeover, realTakeover),
		patience: s.span(s.Patience, fakePatience, realPatience),
		passed:   map[string]int{}, runs: map[callOf]*runs{},
	}
	var err error
	if w.tools, err = w.watch(s.Tools); err != nil {
		return nil, err
	}
	given := w.tools.Names()
	// every agent has them, even if neither the file nor the scenario lists them
	for _, reader := range append(builtin.NewReaders(), builtin.NewAskPerson()) {
		if slices.Contains(given, reader.Spec().Name) {
			continue
		}
		if err := w.tools.Register(reader); err != nil {
			return nil, err
		}
	}
	if w.agent, err = s.definition(w.tools, given); err != nil {
		return nil, err
	}
	if limit := s.span(0, fakeAskTimeout, realAskTimeout); w.agent.AskTimeout == 0 || w.agent.AskTimeout > limit {
		w.agent.AskTimeout = limit
	}
	w.store = memory.New(memory.Options{LeaseTTL: bounds.Default().LeaseTTL, Ring: func(memory.Bell) { w.ring() }})
	w.conn = w.store.Connect(nil)
	w.model = newModel(w)
	if s.plant != nil {
		s.plant(w.store)
	}
	return w, nil
}

// live sends all messages of the scenario, then ends every worker.
func (w *world) live() {
	defer w.end()
	err := w.conn.RegisterAgents(context.Background(), []turnkeeper.AgentRegistration{{
		Name: w.agent.Name, DefinitionHash: w.agent.Hash, Definition: w.agent.Source,
		LanePerConversation: w.agent.LanePerConversation,
	}})
	if err != nil {
		w.problem("the agent cannot be registered: %v", err)
		return
	}
	w.start()
	for _, exchange := range w.scenario.Talk {
		if err := w.say(exchange); err != nil {
			w.problem("%q %v", exchange.Say, err)
			return
		}
	}
}

// say sends one message and waits for its reply.
func (w *world) say(e Exchange) error {
	w.note(nil, "says %q", e.Say)
	id, err := w.conn.Enqueue(context.Background(), turnkeeper.Submission{Agent: w.agent.Name, User: e.User,
		Conversation: e.Conversation, Body: e.Say})
	if err != nil {
		return fmt.Errorf("was not accepted: %w", err)
	}
	w.mu.Lock()
	w.sent = append(w.sent, id)
	w.mu.Unlock()
	closed := func() bool {
		w.answer(id, e.Answers)
		m, _ := w.store.Message(id)
		return !m.ClosedAt.IsZero()
	}
	if !w.await(closed) {
		return fmt.Errorf("had no reply after %s", w.patience)
	}
	if reply, ok := w.store.ReplyTo(id); ok {
		w.note(nil, "gets the reply %q (%s)", reply.Body, reply.Outcome)
	}
	wokenAndIdle := func() bool {
		w.wakeAll()
		return w.idle()
	}
	if !w.await(wokenAndIdle) {
		return errors.New("has its reply, and a worker still works on it")
	}
	return nil
}

// await waits until so returns true. It returns false if that takes longer than
// w.patience.
func (w *world) await(so func() bool) bool {
	over := time.NewTimer(w.patience)
	defer over.Stop()
	for {
		if so() {
			return true
		}
		select {
		case <-w.changed:
		case <-over.C:
			return so()
		}
	}
}

func (w *world) idle() bool {
	return !slices.ContainsFunc(w.all(), (*process).busy)
}

func (w *world) wakeAll() {
	for _, p := range w.all() {
		p.wake()
	}
}

// end ends all workers, and returns when none of their goroutines runs any more.
func (w *world) end() {
	w.wakeAll()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	for _, p := range w.all() {
		p.cancel(errOver)
	}
	w.life.Wait()
}

var errOver = errors.New("the run is over")

func (w *world) all() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// join names a new process and adds it to the world.
func (w *world) join(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes = append(w.processes, p)
	p.id = turnkeeper.WorkerID(fmt.Sprintf("worker-%d", len(w.processes)))
	if w.over { // a worker was killed while the run ended
		p.cancel(errOver)
	}
}

// ring notifies the sender and all processes.
func (w *world) ring() {
	knock(w.changed)
	for _, p := range w.all() {
		knock(p.bell)
		knock(p.inbox)
	}
}

func knock(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// pass records that a point was passed, and returns the fault to inject there, or "".
func (w *world) pass(p *process, name string) kind {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reach(p, name, &w.points, crash, pause)
}

// asked records that a request was executed, and reports whether its answer is lost.
func (w *world) asked(p *process, request string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reach(p, request, &w.writes, lose) == "" {
		return false
	}
	w.addTrace(p, "THE ANSWER IS LOST")
	return true
}

func (w *world) reach(p *process, name string, list *[]Point, kinds ...kind) kind {
	w.passed[name]++
	at := Point{name, w.passed[name]}
	*list = append(*list, at)
	if slices.Contains(kinds, lose) {
		w.addTrace(p, "[request %s]", at)
	} else {
		w.addTrace(p, "%s", at)
	}
	for i, f := range w.faults {
		if f.at == at && slices.Contains(kinds, f.kind) {
			w.struck[i] = true
			return f.kind
		}
	}
	return ""
}

// ran records that a tool starts, and returns the number of that run among the runs of
// its call, from 1.
func (w *world) ran(p *process, spec tools.Spec, call tools.Call) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.runsOf(spec, callOf{call.TurnID, call.Key})
	input := 0
	if call.Input != nil {
		input = call.Input.N
	}
	r.begun[input]++
	w.addTrace(p, "runs %s %s", spec.Name, call.Arguments)
	number := 0
	for _, n := range r.begun {
		number += n
	}
	return number
}

// happened records an effect; first is false if its key had an effect before.
func (w *world) happened(spec tools.Spec, e Effect, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	who := w.named(e.Worker)
	if !first {
		w.addTrace(who, "EFFECT %q: not again, its key is known", e.What)
		return
	}
	w.addTrace(who, "EFFECT %q", e.What)
	r := w.runsOf(spec, callOf{e.Turn, e.Call})
	r.effects = append(r.effects, e)
}

func (w *world) runsOf(spec tools.Spec, call callOf) *runs {
	r := w.runs[call]
	if r == nil {
		r = &runs{spec: spec, begun: map[int]int{}}
		w.runs[call] = r
		w.callOrder = append(w.callOrder, call)
	}
	return r
}

func (w *world) named(id string) *process {
	i := slices.IndexFunc(w.processes, func(p *process) bool { return string(p.id) == id })
	return w.processes[i]
}

// note adds a line to the trace. A nil p means the sender of the messages.
func (w *world) note(p *process, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addTrace(p, format, args...)
}

func (w *world) addTrace(p *process, format string, args ...any) {
	who := "sender"
	if p != nil {
		who = string(p.id)
	}
	line := fmt.Sprintf("%8.3fs  %-9s %s", time.Since(w.began).Seconds(), who, fmt.Sprintf(format, args...))
	w.trace = append(w.trace, strings.TrimRight(line, " "))
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.problems, text) {
		w.problems = append(w.problems, text)
	}
}
