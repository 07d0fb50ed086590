package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/presence"
	"turnkeeper/scheduler"
)

// A town is a small installation in fake time: a store, one scheduler and some workers, without faults of its own. Its
// models answer as a test says.
type town struct {
	t     *testing.T
	store *memory.Store
	conn  *memory.Conn
	ctx   context.Context
	jobs  chan struct{}
	inbox chan struct{}
	defs  map[string]*agentdef.Definition // by hash

	// answer decides how a model answers a request with the given last message. It is called by one goroutine at a
	// time.
	answer func(ctx context.Context, model, body string) error
	retry  inference.Retry
	hook   func(worker int, label string) bool // whether the worker dies at the point

	mu   sync.Mutex
	seen map[string]int // requests by model and last message
}

// newTown starts the scheduler and workers, each with the given number of slots.
func newTown(t *testing.T, workers, slots int, agents ...string) *town {
	w := &town{
		t: t, jobs: make(chan struct{}, 1), inbox: make(chan struct{}, 1), defs: map[string]*agentdef.Definition{},
		seen:   map[string]int{},
		answer: func(context.Context, string, string) error { return nil },
		hook:   func(int, string) bool { return false },
	}
	ctx, stop := context.WithCancel(t.Context())
	w.ctx = ctx
	w.store = memory.New(memory.Options{Now: time.Now, LeaseTTL: bounds.Default().LeaseTTL, Ring: w.ring})
	w.conn = w.store.Connect(nil)
	var all []turnkeeper.AgentRegistration
	for _, source := range agents {
		var name string
		if _, err := fmt.Sscanf(source, "%s", &name); err != nil {
			t.Fatal(err)
		}
		text := "---\n" + source[len(name)+1:] + "\n---\nYou are an agent.\n"
		d, err := agentdef.Parse(name+".md", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		w.defs[d.Hash] = d
		all = append(all, turnkeeper.AgentRegistration{
			Name: name, Definition: d.Source, DefinitionHash: d.Hash, LanePerConversation: d.LanePerConversation,
			Models: d.Chain(""), GiveUpAfter: d.Bounds(bounds.Default()).GiveUpAfter,
		})
	}
	if err := w.conn.RegisterAgents(ctx, all); err != nil {
		t.Fatal(err)
	}
	for i := range workers {
		go w.work(ctx, i+1, slots)
	}
	synctest.Wait()
	go scheduler.New(scheduler.Config{Store: w.conn, Wake: w.inbox, PollInterval: time.Second}).Run(ctx)
	t.Cleanup(func() {
		stop()
		time.Sleep(time.Minute)
	})
	return w
}

func (w *town) ring(b memory.Bell) {
	bell := w.inbox
	if b.Topic == memory.TopicJobs {
		bell = w.jobs
	}
	select {
	case bell <- struct{}{}:
	default:
	}
}

// work runs a worker until it dies.
func (w *town) work(ctx context.Context, n, slots int) {
	id := turnkeeper.WorkerID(fmt.Sprint("worker-", n))
	ctx, die := context.WithCancelCause(ctx)
	conn, free := w.store.Connect(nil), make(chan struct{}, slots)
	conn.Present(id)
	runner := agentturn.New(agentturn.Config{
		Models: w, Bounds: bounds.Default(), Log: zap.NewNop(), Retry: w.retry, Outputs: conn,
		Fault: hookOf(func(label string) {
			if w.hook(n, label) {
				die(context.Canceled)
				conn.Break()
				runtime.Goexit()
			}
		}),
	})
	beat := time.NewTicker(200 * time.Millisecond)
	defer beat.Stop()
	for ctx.Err() == nil {
		if err := conn.Beat(ctx, presence.Heartbeat{WorkerID: id, Host: "town", Slots: slots,
			TakeoverAfter: 15 * time.Second}); err != nil {
			w.t.Error(err)
		}
		taken, err := conn.Fetch(ctx, id, slots-len(free))
		if err != nil {
			w.t.Error(err)
		}
		for _, job := range taken {
			free <- struct{}{}
			go func() {
				defer func() { <-free }()
				w.run(ctx, conn, runner, id, job)
			}()
		}
		select {
		case <-ctx.Done():
		case <-w.jobs:
		case <-beat.C:
		}
	}
}

func (w *town) run(ctx context.Context, conn *memory.Conn, runner *agentturn.Runner, id turnkeeper.WorkerID,
	job memory.Job) {
	if _, err := conn.BindGrant(ctx, job.TurnID, job.GrantID, id); err != nil {
		return
	}
	record, err := conn.Load(ctx, job.TurnID, job.GrantID)
	if err != nil {
		w.t.Error(err)
		return
	}
	turn := record.Turn
	grant := turnkeeper.Grant{TurnID: turn.ID, Lane: turn.Lane, Token: turn.Token, GrantID: turn.GrantID,
		JobID: job.ID, WorkerID: id}
	if _, err := runner.Run(ctx, agentturn.Assignment{Record: record, Definition: w.defs[turn.DefinitionHash]},
		conn.Journal(record, grant)); err != nil && ctx.Err() == nil {
		w.t.Error(err)
	}
}

type hookOf func(label string)

func (f hookOf) At(_ context.Context, label string) { f(label) }

// Find returns the model of a name. Each request takes half a second.
func (w *town) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	return townModel{w, name}, agentturn.ModelInfo{Provider: "town", Model: name[len("town/"):],
		ContextWindow: 100_000}, nil
}

type townModel struct {
	*town
	name string
}

func (m townModel) Generate(ctx context.Context, req inference.Request,
	_ func(inference.Delta)) (inference.Response, error) {
	body := req.Messages[len(req.Messages)-1].Text
	bare := len(req.Messages) == 1 && len(req.Tools) == 0 && req.MaxOutputTokens == 8
	if body == "Reply with ok." && !bare {
		m.t.Errorf("a probe has %d messages, %d tools and %d tokens", len(req.Messages), len(req.Tools),
			req.MaxOutputTokens)
	}
	m.mu.Lock()
	m.seen[m.name+" "+body]++
	m.mu.Unlock()
	time.Sleep(500 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.answer(ctx, m.name, body); err != nil {
		return inference.Response{}, err
	}
	return inference.Response{Text: "Fine.", FinishReason: "stop"}, nil
}

// requests returns how many requests a model got with a last message.
func (w *town) requests(model, body string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[model+" "+body]
}

// send enqueues a message.
func (w *town) send(agent, conversation, body string) turnkeeper.MessageID {
	id, err := w.conn.Enqueue(w.ctx, turnkeeper.Submission{Agent: agent, Conversation: conversation, Body: body})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// until waits until a message is closed, at most for a time, and returns how long that took. It reports a message that
// is still open then.
func (w *town) until(id turnkeeper.MessageID, limit time.Duration) (took time.Duration, closed bool) {
	began := time.Now()
	for time.Since(began) < limit {
		if m, _ := w.store.Message(id); !m.ClosedAt.IsZero() {
			return time.Since(began), true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return limit, false
}

// wantAnswered checks that messages are answered within a time.
func (w *town) wantAnswered(within time.Duration, ids ...turnkeeper.MessageID) {
	w.t.Helper()
	began := time.Now()
	for _, id := range ids {
		w.until(id, within-time.Since(began))
		if m, _ := w.store.Message(id); m.State != turnkeeper.MessageSucceeded &&
			m.State != turnkeeper.MessageDegraded {
			w.t.Errorf("message %d to %s is %s after %s: %s", id, m.Agent, m.State, within, m.LastError)
		}
	}
}

// The faults of a model that are a message's own, and those that never are.
func townFaults() (own, never map[string]*inference.Error) {
	fault := func(class inference.Class, status int, by bool) *inference.Error {
		return &inference.Error{Class: class, Status: status, ByRequest: by, Detail: "on purpose"}
	}
	return map[string]*inference.Error{
			"500": fault(inference.ClassOverloaded, 500, true), "401": fault(inference.ClassAuth, 401, true),
			"403": fault(inference.ClassAuth, 403, true),
			"404": fault(inference.ClassNotFound, 404, true), "reset": fault(inference.ClassTransport, 0, true),
			"cut":     fault(inference.ClassTransport, 200, true),
			"timeout": {Class: inference.ClassTransport, ByRequest: true, Idle: true, Detail: "nothing"},
		}, map[string]*inference.Error{
			"429": fault(inference.ClassRateLimited, 429, false), "503": fault(inference.ClassOverloaded, 503, false),
			"402":     fault(inference.ClassQuota, 402, false),
			"refused": {Class: inference.ClassTransport, Unsent: true, Detail: "connection refused"},
		}
}

// fails answers with an error, an idle timeout after 20 s.
func fails(err *inference.Error) error {
	if err.Idle {
		time.Sleep(20 * time.Second)
	}
	clone := *err
	return &clone
}

// random returns a source of random numbers that the tests' names decide.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 34)) }
