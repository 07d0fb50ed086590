package agentturn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"turnkeeper/agentturn/prompt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// A bench is a turn whose tools, models, store and clock the test controls.
type bench struct {
	t         *testing.T
	store     *store
	script    *inferencetest.Script
	models    map[string]inference.Provider
	windows   map[string]int
	def       *agentdef.Definition
	newest    *agentdef.Definition // as of now; nil: def
	retired   bool
	config    func(*agentturn.Config) // changes the worker's configuration; nil: nothing
	bounds    turnkeeper.Bounds
	tools     []tools.Tool
	earlier   map[string]string // parts of requests that earlier turns have written
	budget    agentturn.Budget
	freshness agentturn.Freshness
	extracted extract.Cache
	extractor string // the setting extraction_model
	fault     fault.Hook
	lease     time.Duration // from the start of a run; 0: the record's
	wall      time.Duration // likewise
	log       *observer.ObservedLogs
	finish    chan struct{}             // closed when the turn is to finish
	before    func(turnlog.Entry) error // hook of each dispatch's journal
	suspects  []modelhealth.Suspect     // what the record says of the turn's message; nil: what the store has
}

func newBench(t *testing.T, steps ...inferencetest.Step) *bench {
	b := &bench{
		t: t, store: newStore(), script: inferencetest.NewScript(steps...),
		def:    &agentdef.Definition{Name: "tester", Prompt: "You test.", Model: "main/model"},
		bounds: bounds.Default(), windows: map[string]int{},
	}
	b.models = map[string]inference.Provider{"main/model": b.script}
	b.bounds.Summarise = false // a summary would take a step of the script
	return b
}

// with adds tools, and lists them in the agent's definition.
func (b *bench) with(all ...tools.Tool) *bench {
	b.tools = append(b.tools, all...)
	for _, tool := range all {
		b.def.Tools = append(b.def.Tools, tool.Spec().Name)
	}
	return b
}

func (b *bench) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	p, ok := b.models[name]
	if !ok {
		return nil, agentturn.ModelInfo{}, fmt.Errorf("no provider for %q is configured", name)
	}
	provider, model, _ := strings.Cut(name, "/")
	return p, agentturn.ModelInfo{Provider: provider, Model: model, ContextWindow: b.windows[name]}, nil
}

func (b *bench) runner() *agentturn.Runner { return b.runnerWith(func(*agentturn.Config) {}) }

// runnerWith returns a runner with a changed configuration.
func (b *bench) runnerWith(change func(*agentturn.Config)) *agentturn.Runner {
	registry, err := tools.NewRegistry(b.tools...)
	if err != nil {
		b.t.Fatal(err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	b.log = logs
	cfg := agentturn.Config{
		Models: b, Tools: registry, Bounds: b.bounds, Budget: b.budget, Freshness: b.freshness, Outputs: b.store.conn,
		Fault: b.fault, Log: zap.New(core), Extractions: b.extracted, ExtractionModel: b.extractor,
	}
	if b.config != nil {
		b.config(&cfg)
	}
	change(&cfg)
	return agentturn.New(cfg)
}

// dispatch runs one dispatch.
func (b *bench) dispatch(ctx context.Context) (turnlog.Outcome, error) {
	record, journal := b.store.dispatch()
	journal.before = b.before
	return b.resume(ctx, record, journal)
}

func (b *bench) resume(ctx context.Context, record *turnlog.Record,
	journal agentturn.Journal) (turnlog.Outcome, error) {
	if b.suspects != nil {
		record.Suspects = b.suspects
	}
	a := agentturn.Assignment{Record: record, Definition: b.def, Newest: b.newest, Retired: b.retired, Finish: b.finish}
	if b.lease != 0 {
		a.LeaseDeadline = time.Now().Add(b.lease)
	}
	if b.wall != 0 {
		a.WallDeadline = time.Now().Add(b.wall)
	}
	before := all(record)
	defer func() {
		if after := all(record); after != before { // its caller may go on with it
			b.t.Errorf("the dispatch changed its record from\n%s\nto\n%s", before, after)
		}
	}()
	return b.runner().Run(ctx, a, journal)
}

// all returns everything that a record holds.
func all(record *turnlog.Record) string {
	return golden.Brief(reflect.ValueOf(record), func(_ string, v reflect.Value) (string, bool) {
		if at, ok := v.Interface().(time.Time); ok {
			return at.String(), true
		}
		return "", false
	})
}

// run runs a dispatch that must write an outcome, and checks the journal.
func (b *bench) run(ctx context.Context) turnlog.Outcome {
	b.t.Helper()
	outcome, err := b.dispatch(ctx)
	b.check()
	if err != nil {
		b.t.Fatalf("run: %v", err)
	}
	return outcome
}

// check fails the test if the journal breaks a rule.
func (b *bench) check() {
	b.t.Helper()
	for _, violation := range b.store.violations() {
		b.t.Error("journal: ", violation)
	}
	b.checkRequests()
}

// parts returns the parts of requests that the turn has written.
func (b *bench) parts() map[string]string {
	parts := map[string]string{}
	for _, e := range b.store.entries {
		for _, part := range e.Parts {
			parts[part.SHA256] = part.Content
		}
	}
	return parts
}

// checkRequests rebuilds the request of every round from the journal, and fails the test
// if one differs from the request that was sent.
func (b *bench) checkRequests() {
	b.t.Helper()
	parts, summaries := b.parts(), []turnlog.Summary{b.store.summary}
	maps.Copy(parts, b.earlier)
	for _, e := range b.store.entries {
		if e.Summary != nil {
			summaries = append(summaries, *e.Summary)
		}
	}
	record := b.store.record()
	for _, round := range record.Rounds {
		if round.Recipe == nil {
			continue // the test wrote this round
		}
		for _, s := range summaries {
			if s.UpTo == prompt.SummaryOf(record, round.Number) {
				record.Summary = s
			}
		}
		for _, fault := range noticeFaults(round.Recipe) {
			b.t.Errorf("the notice of round %d: %s", round.Number, fault)
		}
		rebuilt, err := prompt.Rebuild(record, b.def, round.Number, parts)
		if err != nil {
			b.t.Errorf("the request of round %d: %v", round.Number, err)
			continue
		}
		if sent := inference.SentAs("", prompt.Canonical(rebuilt.Request)); sent.SHA256 != round.Recipe.SHA256 {
			b.t.Errorf("the request of round %d is made again as\n%s", round.Number, prompt.Canonical(rebuilt.Request))
		}
	}
}

// requests returns the requests that the models were sent, each checked by strict.
func (b *bench) requests() []inference.Request {
	b.t.Helper()
	requests := b.script.Requests()
	for i, request := range requests {
		if err := strict(request); err != nil {
			b.t.Errorf("request %d: %v", i+1, err)
		}
	}
	return requests
}

// strict returns an error for a request that a strict server refuses.
func strict(r inference.Request) error {
	owed, ids := map[string]bool{}, map[string]bool{}
	for i, m := range r.Messages {
		if m.Role != inference.RoleTool && len(owed) > 0 {
			return fmt.Errorf("message %d comes before the answers to %d calls", i, len(owed))
		}
		switch m.Role {
		case inference.RoleTool:
			if !owed[m.CallID] {
				return fmt.Errorf("message %d answers the call %q, which is not open", i, m.CallID)
			}
			delete(owed, m.CallID)
		case inference.RoleAssistant:
			for _, call := range m.Calls {
				if call.ID == "" || ids[call.ID] {
					return fmt.Errorf("call id %q is missing or repeated", call.ID)
				}
				var object map[string]any
				if err := json.Unmarshal([]byte(call.Arguments), &object); err != nil {
					return fmt.Errorf("call %s has arguments %q: %w", call.ID, call.Arguments, err)
				}
				ids[call.ID], owed[call.ID] = true, true
			}
		case inference.RoleSystem:
			if i != 0 {
				return errors.New("a system message in the middle")
			}
		}
		if m.Text == "" && len(m.Calls) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
	}
	if len(owed) > 0 {
		return fmt.Errorf("%d calls are not answered", len(owed))
	}
	if len(ids) > 0 && r.Tools == nil {
		return errors.New("tool messages without declared tools")
	}
	return nil
}

// results returns the texts of the tool messages of a request, in order.
func results(r inference.Request) []string {
	var texts []string
	for _, m := range r.Messages {
		if m.Role == inference.RoleTool {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

func (b *bench) states() []turnkeeper.CallState {
	var states []turnkeeper.CallState
	for _, call := range b.store.calls() {
		states = append(states, call.State)
	}
	return states
}

// A tool is a tools.Tool whose runs are recorded and whose behaviour the test sets.
type tool struct {
	spec tools.Spec
	f    func(ctx context.Context, call tools.Call) (tools.Result, error)
	runs *ledger
}

func (t *tool) Spec() tools.Spec { return t.spec }

// withBackground allows the tool's calls to move to the background, with any effect.
func (t *tool) withBackground() *tool {
	t.spec.Background = new(true)
	return t
}

func (t *tool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	t.runs.add(call)
	if t.f == nil {
		return tools.Result{Text: t.spec.Name + " ran"}, nil
	}
	return t.f(ctx, call)
}

// A ledger records the runs of a tool, outside of the journal.
type ledger struct {
	mu    sync.Mutex
	calls []tools.Call
}

func (l *ledger) add(call tools.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
}

func (l *ledger) count() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.calls) }

func (l *ledger) perCall() map[turnkeeper.CallKey]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[turnkeeper.CallKey]int{}
	for _, call := range l.calls {
		n[call.Key]++
	}
	return n
}

func newTool(name string, effect turnkeeper.Effect) *tool {
	return &tool{
		spec: tools.Spec{
			Name: name, Description: "A tool of a test.", Effect: effect,
			Parameters: json.RawMessage(
				`{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}`),
		},
		runs: &ledger{},
	}
}

func read(name string) *tool { return newTool(name, turnkeeper.EffectNone) }
func once(name string) *tool { return newTool(name, turnkeeper.EffectOnce) }

// does sets the tool's function.
func (t *tool) does(f func(ctx context.Context, call tools.Call) (tools.Result, error)) *tool {
	t.f = f
	return t
}

// A reconciler is a tool that can look up whether a call happened.
type reconciler struct {
	*tool
	look func() (tools.Result, bool, error)
}

func (r *reconciler) Reconcile(context.Context, tools.Call) (tools.Result, bool, error) {
	return r.look()
}

// asks returns a step that asks for calls, each written as "name" or "name {arguments}".
func asks(calls ...string) inferencetest.Step { return inferencetest.Answer(asking("", calls...)) }

func asking(text string, calls ...string) inference.Response {
	res := inference.Response{Text: text, FinishReason: "tool_calls", Usage: turnkeeper.Usage{InputTokens: 10,
		OutputTokens: 5}}
	for i, call := range calls {
		name, args, _ := strings.Cut(call, " ")
		if args == "" {
			args = fmt.Sprintf(`{"n":%d}`, i+1)
		}
		res.Calls = append(res.Calls, inference.Call{ID: fmt.Sprintf("call_%s_%d", name, i+1), Name: name,
			Arguments: args})
	}
	return res
}

func says(text string) inferencetest.Step {
	return inferencetest.Answer(inference.Response{
		Text: text, FinishReason: "stop", Usage: turnkeeper.Usage{InputTokens: 10, OutputTokens: 5},
	})
}

func fails(class inference.Class) inferencetest.Step {
	return inferencetest.Fail(&inference.Error{Class: class, Provider: "main", Model: "model", Detail: "as scripted"})
}

func repeat(n int, step inferencetest.Step) []inferencetest.Step {
	return slices.Repeat([]inferencetest.Step{step}, n)
}

// eventTypes returns the types of the turn's events in order, with rounds and blocks.
func (b *bench) eventTypes() []string {
	var types []string
	for _, e := range b.store.events() {
		types = append(types, string(e.Type))
	}
	return types
}

// streamed returns the text of a round as a follower of the events has it at the end.
func (b *bench) streamed(round int) string {
	text := ""
	kinds := map[int]string{}
	for _, e := range b.store.events() {
		if e.Round != round {
			continue
		}
		switch e.Type {
		case turnkeeper.EventRoundRollback:
			text = ""
		case turnkeeper.EventBlockStart:
			var data turnevents.BlockStartData
			b.decode(e.Data, &data)
			kinds[e.Block] = data.Kind
		case turnkeeper.EventBlockDelta:
			var data turnevents.BlockDeltaData
			b.decode(e.Data, &data)
			if kinds[e.Block] == "text" {
				text += data.Text
			}
		}
	}
	return text
}

func (b *bench) decode(data json.RawMessage, into any) {
	b.t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		b.t.Fatalf("event data %s: %v", data, err)
	}
}

// inDoubt makes a turn whose message a model has failed while it was not known to be up.
func (b *bench) inDoubt() *bench {
	b.suspects = []modelhealth.Suspect{{Model: "main/model", Failures: 1, Requests: 4, Open: true}}
	return b
}

func (b *bench) logged(message string) int { return b.log.FilterMessage(message).Len() }

func inferStep(res inference.Response) inferencetest.Step { return inferencetest.Answer(res) }
