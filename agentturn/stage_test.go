package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/scheduler"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// A way is how a play is run. It must not change the outcome.
type way struct {
	name       string
	background bool          // tools are slow, and go on in the background
	detached   bool          // tools run in jobs of their own
	async      bool          // sub-agents are not waited for at once
	renamed    bool          // tools have other names
	elsewhere  bool          // rules about calls are in the agent's file instead of the tools' specs
	split      bool          // answers that can be are two answers
	fresh      bool          // each dispatch has a new worker, which has read the agents' files again
	lost       uint64        // the seed by which answers of the store are lost; 0: none is
	backwards  bool          // people answer the newest ask first
	stepwise   bool          // each step is on record before the next one
	early      bool          // reads may start while the model speaks
	flaky      bool          // each request to a model fails once
	ahead      time.Duration // how far the database's clock is ahead
	strikes    []strike      // where a worker dies
	stops      bool          // strikes are shutdowns
}

// A strike is the nth time that a fault point is passed, by any worker.
type strike struct {
	label string
	n     int
}

// A stage runs a play in a way, with a scheduler, workers and people, and records what happens outside of the turn.
type stage struct {
	play
	way
	mem     *memory.Store
	conn    *memory.Conn
	ticks   *scheduler.Scheduler
	workers int
	worker  *worker
	message turnkeeper.MessageID
	asked   map[askings.ID]bool // whether somebody has answered it
	meter   *meter

	mu      sync.Mutex
	points  map[string]int // fault points passed
	runs    []toolRun
	said    map[turnkeeper.TurnID][]inference.Call // the newest answer's calls, which may not be on record
	decided []policy.Call                          // what rules were asked about
	faults  []string                               // broken promises
	bells   int                                    // that were rung for the scheduler
}

// A toolRun is a call as a tool received it.
type toolRun struct {
	tool string
	tools.Call
	state turnkeeper.CallState // as journaled while it ran
}

// A worker is a process of a stage.
type worker struct {
	id      turnkeeper.WorkerID
	conn    *memory.Conn
	runner  *agentturn.Runner
	cancel  context.CancelCauseFunc // of what it runs
	defined map[string]*agentdef.Definition
}

const stageLease = time.Hour

func newStage(p play, w way) *stage {
	s := &stage{play: p, way: w, asked: map[askings.ID]bool{}, points: map[string]int{},
		said: map[turnkeeper.TurnID][]inference.Call{}}
	s.meter = newMeter(s)
	s.mem = memory.New(memory.Options{
		LeaseTTL: stageLease, Now: func() time.Time { return time.Now().Add(w.ahead) }, Ring: func(b memory.Bell) {
			if b.Topic == memory.TopicInbox {
				s.bells++
			}
		},
	})
	s.conn = s.mem.Connect(nil)
	s.ticks = scheduler.New(scheduler.Config{Store: s.conn, LeaseTTL: stageLease, Log: zap.NewNop()})
	if err := s.conn.RegisterAgents(context.Background(), []turnkeeper.AgentRegistration{
		{Name: "tester", DefinitionHash: "tester", Definition: []byte(s.file("tester"))},
		{Name: "scout", DefinitionHash: "scout", Definition: []byte(s.file("scout"))},
	}); err != nil {
		panic(err)
	}
	return s
}

// file returns the file of an agent.
func (s *stage) file(agent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\ndescription: d\nmodel: main/%s\nask_timeout: 1h\n", agent)
	names := []string{turnkeeper.ToolAskPerson}
	for _, p := range props {
		names = append(names, s.nameOf(p.name))
	}
	fmt.Fprintf(&b, "tools: [%s]\n", strings.Join(names, ", "))
	if s.stepwise {
		b.WriteString("durability: step\n")
	}
	if s.settles {
		b.WriteString("on_unknown: ask\n")
	}
	if agent == "tester" {
		b.WriteString("sub_agents: [scout]\n")
		if s.inbox {
			b.WriteString("inbox_labels: [untrusted]\n")
		}
		if s.sink != "" {
			fmt.Fprintf(&b, "reply_sink: %s\n", s.sink)
		}
	}
	return b.String() + "---\nYou test.\n"
}

// defineAgents returns the agents' definitions, read from their files.
func (s *stage) defineAgents() map[string]*agentdef.Definition {
	all := map[string]*agentdef.Definition{}
	for _, name := range []string{"tester", "scout"} {
		all[name] = must(agentdef.Parse(name+".md", []byte(s.file(name))))
		all[name].Approve = map[string]string{}
		for tool, rule := range s.rules {
			if s.elsewhere || tool == turnkeeper.ToolSpawnAgent {
				all[name].Approve[s.nameOf(tool)] = rule
			}
		}
	}
	return all
}

// nameOf returns the name of a tool in this way.
func (s *stage) nameOf(tool string) string {
	if s.renamed && tool != turnkeeper.ToolSpawnAgent && tool != turnkeeper.ToolAskPerson {
		return "server__" + tool
	}
	return tool
}

// bounds returns the bounds of all turns.
func (s *stage) bounds() turnkeeper.Bounds {
	b := bounds.Default()
	b.MaxRounds, b.RoundCeiling, b.MaxToolCalls, b.MaxPagingCalls, b.MaxSubAgents = 100, 200, 200, 1000, 100
	b.MaxDuration, b.LeaseTTL, b.OutputHandles, b.Summarise = 20*time.Minute, stageLease, true, false
	return b
}

// newWorker starts a process. The one before it is gone.
func (s *stage) newWorker() {
	s.workers++
	w := &worker{id: turnkeeper.WorkerID(fmt.Sprint("worker-", s.workers)), defined: s.defineAgents()}
	var wire memory.Wire
	if s.lost != 0 {
		wire = &lossyWire{rand: rand.New(rand.NewPCG(s.lost, uint64(s.workers)))}
	}
	w.conn = s.mem.Connect(wire)
	w.conn.Present(w.id)
	registry := must(tools.NewRegistry(append(builtin.NewReaders(), builtin.NewAskPerson())...))
	for _, p := range props {
		if err := registry.Register(&propTool{s, p}); err != nil {
			panic(err)
		}
	}
	w.runner = agentturn.New(agentturn.Config{
		Models: s, Tools: registry, Bounds: s.bounds(), Outputs: w.conn, Fault: s, Log: zap.NewNop(),
		Budget: s.meter, Observer: s.meter, ResultMemory: s.meter.memory,
		Rules: &policy.Cache{Compiler: func(source string) (policy.Rule, error) { return ruleOf{s, source}, nil }},
	})
	s.worker = w
}

// A lossyWire does not answer some writes, and does not do others.
type lossyWire struct{ rand *rand.Rand }

func (w *lossyWire) Carry(_ context.Context, _ string, do func() error) error {
	switch w.rand.IntN(5) {
	case 0:
		return memory.ErrAway
	case 1:
		if err := do(); err != nil {
			return err
		}
		return memory.ErrAway
	}
	return do()
}

// run plays the play until its message is answered and nothing is left to do.
func (s *stage) run(t *testing.T) {
	ctx := t.Context()
	for range 3 { // so that a message and its turn have different numbers
		must(s.conn.Enqueue(ctx, turnkeeper.Submission{Agent: "tester", User: "zoe", Body: "later",
			DueAt: time.Now().AddDate(9, 0, 0)}))
	}
	s.message = must(s.conn.Enqueue(ctx, turnkeeper.Submission{Agent: "tester", User: "anna", Conversation: "garden",
		Body: "do it"}))
	s.newWorker()
	steps := 0
	for idle := 0; idle < 4; {
		if steps++; steps > 300 {
			s.fault("the turn does not end")
			break
		}
		if s.step(ctx) {
			idle = 0
			continue
		}
		idle++
		time.Sleep(20 * time.Minute) // until a dead worker counts as lost, or an ask has expired
	}
	time.Sleep(time.Hour) // until the tools of dead workers end
}

// step does what there is to do, and reports whether there was anything.
func (s *stage) step(ctx context.Context) (done bool) {
	if s.fresh {
		s.newWorker()
	}
	w := s.worker
	if err := s.conn.Beat(ctx, presence.Heartbeat{WorkerID: w.id, Slots: 8, TakeoverAfter: time.Minute}); err != nil {
		panic(err)
	}
	must(s.ticks.Tick(ctx))
	for _, job := range must(s.conn.Fetch(ctx, w.id, 1)) {
		s.attempt(ctx, w, func(ctx context.Context) { s.dispatch(ctx, w, job) })
		return true
	}
	for _, job := range must(s.conn.FetchCalls(ctx, w.id, 1)) {
		s.attempt(ctx, w, func(ctx context.Context) { s.detachedCall(ctx, w, job.Ref) })
		return true
	}
	return s.people()
}

// attempt does a piece of work of a worker, which may die of it.
func (s *stage) attempt(ctx context.Context, w *worker, work func(context.Context)) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.cancel = cancel
	done, alive := make(chan struct{}), false
	go func() {
		defer close(done)
		work(ctx)
		alive = true
	}()
	<-done
	if !alive {
		w.conn.Break()
		s.newWorker()
	}
}

func (s *stage) dispatch(ctx context.Context, w *worker, job memory.Job) {
	if err := patience(func() error {
		_, err := w.conn.BindGrant(ctx, job.TurnID, job.GrantID, w.id)
		return err
	}); err != nil {
		panic(err)
	}
	record := must(w.conn.LoadPatiently(ctx, job.TurnID, job.GrantID))
	journal := w.conn.Journal(record, turnkeeper.Grant{
		TurnID: record.Turn.ID, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: record.Turn.GrantID,
		JobID: job.ID, WorkerID: w.id,
	})
	bounds := s.bounds()
	if agent := record.Turn.Agent; agent == "tester" && s.insists {
		bounds.MaxRounds = s.charged() + 1
	}
	a := agentturn.Assignment{Record: record, Definition: w.defined[record.Turn.Agent], Bounds: bounds}
	if s.fresh {
		a.Newest = s.defineAgents()[record.Turn.Agent]
	}
	if _, err := w.runner.Run(ctx, a, journal); err != nil {
		s.fault("the dispatch ended with %v", err)
	}
}

func patience(f func() error) error {
	for {
		if err := f(); !errors.Is(err, memory.ErrAway) {
			return err
		}
		time.Sleep(time.Second)
	}
}

func (s *stage) detachedCall(ctx context.Context, w *worker, ref turnlog.CallRef) {
	names := []string{}
	for _, p := range props {
		names = append(names, s.nameOf(p.name))
	}
	claimed, err := w.conn.Claim(ctx, ref, w.id, names)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return
	}
	if err != nil {
		panic(err)
	}
	if _, err := w.runner.RunDetached(ctx, claimed, w.conn); err != nil && !errors.Is(err, memory.ErrAway) {
		s.fault("the detached call ended with %v", err)
	}
}

// At strikes the worker.
func (s *stage) At(_ context.Context, label string) {
	s.mu.Lock()
	s.points[label]++
	hit, w := slices.Contains(s.strikes, strike{label, s.points[label]}), s.worker
	s.mu.Unlock()
	switch {
	case hit && s.stops:
		w.cancel(agentturn.ErrShutdown)
	case hit:
		runtime.Goexit()
	}
}

func (s *stage) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// people answer the open asks, and report whether there was one that they answer.
func (s *stage) people() bool {
	open := s.mem.OpenAsks()
	if s.backwards {
		slices.Reverse(open)
	}
	for _, ask := range open {
		answer, answers := s.answerTo(ask)
		if !answers {
			continue
		}
		bells := s.bells
		if _, err := s.conn.AnswerAsk(context.Background(), ask.ID, answer); err != nil {
			panic(fmt.Sprintf("%v: %+v to %+v", err, answer, ask))
		}
		if turn, _, _, _ := s.mem.Turn(ask.Turn); turn.State == turnkeeper.TurnQueued && s.bells == bells {
			s.fault("the answer to ask %d rang no doorbell", ask.ID)
		}
		return true
	}
	return false
}

// answerTo returns what a person answers. answers is false if nobody does.
func (s *stage) answerTo(ask askings.Ask) (a askings.Answer, answers bool) {
	a = askings.Answer{By: "ann", Channel: "test", Decision: askings.Approved, Hash: ask.Hash}
	switch ask.Kind {
	case askings.KindReply:
		if !s.sent {
			a.Decision = askings.Denied
		}
		return a, true
	case askings.KindSettle:
		a.Decision, a.Answer = askings.Answered, askings.DidNotHappen
		if s.ran(ask.Turn, ask.Call) > 0 {
			a.Answer = askings.Happened
		}
		return a, true
	}
	l := s.lineOf(ask.Turn, ask.Call)
	switch {
	case l.answer == answerLate:
		return a, false
	case l.answer == answerNo:
		a.Decision = askings.Denied
	case ask.Kind == askings.KindInput:
		a.Decision, a.Answer = askings.Answered, fmt.Sprintf(`{"seat": %d.0}`, l.n)
	case ask.Kind == askings.KindQuestion:
		a.Decision, a.Answer = askings.Answered, fmt.Sprintf("%q", "answer to "+wireOf(l.n))
	case l.answer == answerEdit:
		a.Edited = s.edited(l)
	}
	return a, true
}

// ran returns how often the tool of a call has run.
func (s *stage) ran(turn turnkeeper.TurnID, key turnkeeper.CallKey) (n int) {
	for _, r := range s.runs {
		if r.TurnID == turn && r.Key == key {
			n++
		}
	}
	return n
}

// lineOf returns the line of a call.
func (s *stage) lineOf(turn turnkeeper.TurnID, key turnkeeper.CallKey) line {
	_, rounds, _, _ := s.mem.Turn(turn)
	l, _ := s.find(numberOf(rounds[key.Round-1].Calls[key.Ordinal-1].WireID))
	return l
}

// A wire id names the line of a call: c and its number.
func wireOf(n int) string { return fmt.Sprint("c", n) }

func numberOf(wire string) (n int) {
	if _, err := fmt.Sscanf(wire, "c%d", &n); err != nil {
		return 0
	}
	return n
}
