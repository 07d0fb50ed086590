package protocoltest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/memory"
	"turnkeeper/scheduler"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// takeoverAfter is the silence after which a worker counts as lost.
const takeoverAfter = 30 * time.Second

const scriptedModel = "test/scripted"

// An env is one installation: a store, a scheduler and workers, all driven by commands.
type env struct {
	t         *testing.T
	began     time.Time
	store     *memory.Store
	conn      *memory.Conn // for the scheduler and clients
	scheduler *scheduler.Scheduler
	tools     *tools.Registry
	workers   map[string]*worker
	names     []string // of the workers, in the order of their start
	shown     map[string]string
	printed   map[turnkeeper.TurnID]int // events printed so far

	mu      sync.Mutex
	answers []string // of the model, not given yet
	events  []string // since the last command
}

func newEnv(t *testing.T, model string) *env {
	e := &env{t: t, began: time.Now(), workers: map[string]*worker{}, shown: map[string]string{},
		printed: map[turnkeeper.TurnID]int{}}
	for line := range strings.Lines(model) {
		if line = strings.TrimSpace(line); line != "" {
			e.answers = append(e.answers, line)
		}
	}
	e.store = memory.New(memory.Options{Ring: e.ring})
	e.conn = e.store.Connect(nil)
	e.scheduler = scheduler.New(scheduler.Config{Store: e.conn})
	all := builtin.NewReaders()
	for name, spec := range map[string]tools.Spec{
		"look": {Effect: turnkeeper.EffectNone},
		"put":  {Effect: turnkeeper.EffectKeyed},
		"pay":  {Effect: turnkeeper.EffectOnce},
		"send": {Effect: turnkeeper.EffectOnce, Detached: true, Timeout: 10 * time.Minute},
	} {
		spec.Name, spec.Description = name, "A tool of the transcripts."
		spec.Parameters = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
		all = append(all, tool{spec})
	}
	var err error
	if e.tools, err = tools.NewRegistry(all...); err != nil {
		t.Fatal(err)
	}
	return e
}

// close ends all workers.
func (e *env) close() {
	for _, name := range e.names {
		e.workers[name].end()
	}
}

func (e *env) event(who, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, strings.TrimSpace(who+" "+fmt.Sprintf(format, args...)))
}

func (e *env) takeEvents() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	events := e.events
	e.events = nil
	return events
}

// at formats a time as the time since the start.
func (e *env) at(t time.Time) string { return t.Sub(e.began).Round(time.Millisecond).String() }

func (e *env) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

// ring tells a worker that its grant was taken away.
func (e *env) ring(b memory.Bell) {
	if b.Topic != memory.TopicTaken {
		return
	}
	for _, name := range e.names {
		e.workers[name].loseGrant(b.Grant)
	}
}

func (e *env) register(agent, cron string) {
	source := "---\ntools: [look, put, pay, send]\n---\nYou are " + agent + ".\n"
	def, err := agentdef.Parse("agents/"+agent+".md", []byte(source))
	if err != nil {
		e.t.Fatal(err)
	}
	registration := turnkeeper.AgentRegistration{
		Name: agent, Definition: def.Source, DefinitionHash: def.Hash, LanePerConversation: def.LanePerConversation,
		Models: def.Chain(scriptedModel), GiveUpAfter: bounds.Default().GiveUpAfter,
	}
	if cron != "" {
		registration.Schedules = []turnkeeper.Schedule{{
			Agent: agent, Name: "daily", Cron: cron, TimeZone: "UTC", Conversation: turnkeeper.DefaultConversation,
			Message: "It is time.",
		}}
	}
	if err := e.conn.RegisterAgents(e.t.Context(), []turnkeeper.AgentRegistration{registration}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) enqueue(agent, body string) {
	if _, err := e.conn.Enqueue(e.t.Context(), turnkeeper.Submission{Agent: agent, Body: body}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) tick() scheduler.Report {
	report, err := e.scheduler.Tick(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	for _, part := range []struct {
		n    int
		what string
	}{
		{report.Requeued, "turn taken from a lost worker"},
		{report.Closed, "turn of a lost worker answered without running"},
		{report.Calls, "lost call handled"}, {report.Slots, "schedule slot became a message"},
		{report.Granted, "lane granted"},
	} {
		if part.n > 0 {
			e.event("scheduler:", "%d %s", part.n, part.what)
		}
	}
	if report.Held != "" {
		e.event("scheduler:", "holds off: %s", report.Held)
	}
	return report
}

func (e *env) giveAgain(job int64) { e.store.Forget(turnkeeper.JobID(job)) }

func (e *env) cancel(what string, id int64) {
	var closed bool
	var err error
	if what == "message" {
		_, closed, err = e.conn.CancelMessage(e.t.Context(), turnkeeper.MessageID(id))
	} else {
		closed, err = e.conn.CancelTurn(e.t.Context(), turnkeeper.TurnID(id))
	}
	if err != nil {
		e.event("cancel:", "%v", err)
	} else if !closed {
		e.event("cancel:", "the turn runs; its worker will end it")
	}
}

// advance lets time pass while workers send heartbeats.
func (e *env) advance(text string) {
	left, err := time.ParseDuration(text)
	if err != nil {
		e.t.Fatal(err)
	}
	const beat = 5 * time.Second
	for left > 0 {
		step := min(left, beat)
		<-time.After(step)
		left -= step
		for _, name := range e.names {
			e.workers[name].beat()
		}
	}
}

// Find implements agentturn.Models: the script is the model of every name.
func (w *worker) Find(string) (inference.Provider, agentturn.ModelInfo, error) {
	return w, agentturn.ModelInfo{Provider: "test", Model: "scripted"}, nil
}

// Generate returns the script's next answer.
func (w *worker) Generate(_ context.Context, _ inference.Request, _ func(inference.Delta)) (inference.Response, error) {
	e := w.env
	e.mu.Lock()
	if len(e.answers) == 0 {
		e.mu.Unlock()
		e.t.Error("the model has no more answers")
		return inference.Response{}, &inference.Error{Class: inference.ClassInvalid, Provider: "test",
			Model: "scripted", Detail: "no more answers"}
	}
	answer := e.answers[0]
	e.answers = e.answers[1:]
	e.mu.Unlock()
	e.event(w.name, "asks the model: %s", answer)
	res := inference.Response{Provider: "test", Model: "scripted", FinishReason: "stop",
		Usage: turnkeeper.Usage{InputTokens: 10, OutputTokens: 5}}
	verb, rest, _ := strings.Cut(answer, " ")
	switch verb {
	case "say":
		res.Text = strings.Trim(rest, `"`)
	case "call":
		for i, name := range strings.Fields(rest) {
			res.Calls = append(res.Calls, inference.Call{ID: fmt.Sprint("call_", i+1), Name: name, Arguments: "{}"})
		}
	case "unavailable":
		return res, &inference.Error{Class: inference.ClassOverloaded, Provider: "test", Model: "scripted",
			Detail: "the provider is down"}
	default:
		e.t.Errorf("the model cannot answer with %q", answer)
	}
	return res, nil
}

// A tool of the transcripts. It records its runs as events.
type tool struct{ spec tools.Spec }

func (t tool) Spec() tools.Spec { return t.spec }

func (t tool) Run(ctx context.Context, _ tools.Call) (tools.Result, error) {
	w := ctx.Value(workerKey{}).(*worker)
	w.env.event(w.name, "runs %s", t.spec.Name)
	return tools.Result{Text: "done"}, nil
}
