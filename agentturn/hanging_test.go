package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/inference"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A snag lets the nth call of a method of a turn's surroundings hang until its context ends.
type snag struct {
	method string
	n      int

	mu    sync.Mutex     // of what follows: tools call at the same time as the turn
	stop  func()         // ends the turn's context, a while after the call began to hang; nil: nothing does
	calls map[string]int // of each method
	hit   bool
	deaf  bool // the context of the call did not end
}

// hang returns the error of a call that hung; nil: it does not hang.
func (s *snag) hang(ctx context.Context, method string) error {
	s.mu.Lock()
	s.calls[method]++
	hangs := method == s.method && s.calls[method] == s.n
	s.hit = s.hit || hangs
	s.mu.Unlock()
	if !hangs {
		return nil
	}
	if s.stop != nil {
		time.AfterFunc(hangTime, s.stop)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Hour):
		s.mu.Lock()
		s.deaf = true
		s.mu.Unlock()
		return errors.New("it hung for an hour")
	}
}

// hangTime is how long a call hangs before the turn is stopped.
const hangTime = 3 * time.Second

// These are the surroundings of a turn, with a snag.
type (
	snaggedJournal struct {
		*journal
		*snag
	}
	snaggedBudget struct {
		agentturn.Budget
		*snag
	}
	snaggedFreshness struct {
		agentturn.Freshness
		*snag
	}
	snaggedOutputs struct {
		toolrun.Outputs
		*snag
	}
	snaggedCache struct {
		extract.Cache
		*snag
	}
	snaggedModel struct {
		inference.Provider
		*snag
	}
	snaggedTool struct {
		tools.Tool
		*snag
	}
	snaggedApprover   struct{ snaggedTool }
	snaggedReconciler struct{ snaggedTool }
)

// surroundings are the interfaces through which a turn reaches what may hang. Each method with a context must have been
// tried.
var surroundings = []reflect.Type{
	reflect.TypeFor[agentturn.Journal](), reflect.TypeFor[toolrun.Drafts](), reflect.TypeFor[agentturn.Budget](),
	reflect.TypeFor[agentturn.Freshness](),
	reflect.TypeFor[toolrun.Outputs](), reflect.TypeFor[extract.Cache](), reflect.TypeFor[inference.Provider](),
	reflect.TypeFor[tools.Tool](),
	reflect.TypeFor[tools.Approver](), reflect.TypeFor[tools.Reconciler](),
}

func (j snaggedJournal) Append(ctx context.Context, e turnlog.Entry) error {
	if e.Outcome == nil { // else the store gives it a grace of its own
		if err := j.hang(ctx, "Append"); err != nil {
			return err
		}
	}
	return j.journal.Append(ctx, e)
}

func (j snaggedJournal) Transact(
	ctx context.Context, start turnlog.CallStart, within time.Duration, run func(context.Context) turnlog.CallResult,
) (r turnlog.CallResult, err error) {
	if err := j.hang(ctx, "Transact"); err != nil {
		return r, err
	}
	return j.journal.Transact(ctx, start, within, run)
}

func (j snaggedJournal) Arrivals(ctx context.Context) ([]turnlog.CallResult, error) {
	if err := j.hang(ctx, "Arrivals"); err != nil {
		return nil, err
	}
	return j.journal.Arrivals(ctx)
}

func (j snaggedJournal) NewMessage(ctx context.Context) (turnkeeper.MessageID, error) {
	if err := j.hang(ctx, "NewMessage"); err != nil {
		return 0, err
	}
	return j.journal.NewMessage(ctx)
}

func (j snaggedJournal) Late(ctx context.Context, r turnlog.CallResult) error {
	if err := j.hang(ctx, "Late"); err != nil {
		return err
	}
	return j.journal.Late(ctx, r)
}

func (j snaggedJournal) WriteDraft(ctx context.Context, part turnlog.OutputPart) error {
	if err := j.hang(ctx, "WriteDraft"); err != nil {
		return err
	}
	return j.journal.WriteDraft(ctx, part)
}

func (j snaggedJournal) RequestParts(ctx context.Context, hashes ...string) (map[string]string, error) {
	if err := j.hang(ctx, "RequestParts"); err != nil {
		return nil, err
	}
	return j.journal.RequestParts(ctx, hashes...)
}

func (j snaggedJournal) DropDraft(ctx context.Context, id turnkeeper.OutputID) error {
	if err := j.hang(ctx, "DropDraft"); err != nil {
		return err
	}
	return j.journal.DropDraft(ctx, id)
}

func (b snaggedBudget) Reserve(ctx context.Context, who agentturn.Spender,
	u turnkeeper.Usage) (r agentturn.Reservation, err error) {
	if err := b.hang(ctx, "Reserve"); err != nil {
		return r, err
	}
	return b.Budget.Reserve(ctx, who, u)
}

func (b snaggedBudget) Settle(ctx context.Context, r agentturn.Reservation, u turnkeeper.Usage) error {
	if err := b.hang(ctx, "Settle"); err != nil {
		return err
	}
	return b.Budget.Settle(ctx, r, u)
}

func (f snaggedFreshness) RecentCalls(ctx context.Context, agent, name, hash string,
	within time.Duration) ([]turnlog.PastCall, error) {
	if err := f.hang(ctx, "RecentCalls"); err != nil {
		return nil, err
	}
	return f.Freshness.RecentCalls(ctx, agent, name, hash, within)
}

func (o snaggedOutputs) DescribeOutput(
	ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID,
) (out turnkeeper.Output, err error) {
	if err := o.hang(ctx, "DescribeOutput"); err != nil {
		return out, err
	}
	return o.Outputs.DescribeOutput(ctx, turn, id)
}

func (o snaggedOutputs) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from,
	to int64) (string, error) {
	if err := o.hang(ctx, "ReadOutput"); err != nil {
		return "", err
	}
	return o.Outputs.ReadOutput(ctx, turn, id, from, to)
}

func (o snaggedOutputs) NoteRetrieved(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) error {
	if err := o.hang(ctx, "NoteRetrieved"); err != nil {
		return err
	}
	return o.Outputs.NoteRetrieved(ctx, turn, id)
}

func (c snaggedCache) FindExtraction(ctx context.Context, key turnlog.ExtractionKey) ([]byte, bool, error) {
	if err := c.hang(ctx, "FindExtraction"); err != nil {
		return nil, false, err
	}
	return c.Cache.FindExtraction(ctx, key)
}

func (c snaggedCache) KeepExtraction(ctx context.Context, turn turnkeeper.TurnID, key turnlog.ExtractionKey,
	value []byte) error {
	if err := c.hang(ctx, "KeepExtraction"); err != nil {
		return err
	}
	return c.Cache.KeepExtraction(ctx, turn, key, value)
}

func (m snaggedModel) Generate(ctx context.Context, r inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if err := m.hang(ctx, "Generate"); err != nil {
		return inference.Response{}, err
	}
	return m.Provider.Generate(ctx, r, onDelta)
}

func (t snaggedTool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	if err := t.hang(ctx, "Run"); err != nil {
		return tools.Result{}, err
	}
	return t.Tool.Run(ctx, call)
}

func (t snaggedApprover) Approve(ctx context.Context, call tools.Call) (policy.Decision, error) {
	if err := t.hang(ctx, "Approve"); err != nil {
		return policy.Decision{}, err
	}
	return t.Tool.(tools.Approver).Approve(ctx, call)
}

func (t snaggedReconciler) Reconcile(ctx context.Context, call tools.Call) (tools.Result, bool, error) {
	if err := t.hang(ctx, "Reconcile"); err != nil {
		return tools.Result{}, false, err
	}
	return t.Tool.(tools.Reconciler).Reconcile(ctx, call)
}

// surround puts a snag into all surroundings of a turn.
func (s *snag) surround(b *bench) {
	b.budget = snaggedBudget{&till{n: 99}, s}
	if b.freshness != nil {
		b.freshness = snaggedFreshness{b.freshness, s}
	}
	b.extracted = snaggedCache{b.store.conn, s}
	b.config = func(c *agentturn.Config) { c.Outputs = snaggedOutputs{b.store.conn, s} }
	for name, model := range b.models {
		b.models[name] = snaggedModel{model, s}
	}
	for i, tool := range b.tools {
		switch of := (snaggedTool{tool, s}); tool.(type) {
		case tools.Approver:
			b.tools[i] = snaggedApprover{of}
		case tools.Reconciler:
			b.tools[i] = snaggedReconciler{of}
		default:
			b.tools[i] = of
		}
	}
}

// hangingTurns are turns that together call every method of their surroundings.
var hangingTurns = map[string]func(t *testing.T) *bench{
	"calls of every kind": func(t *testing.T) *bench {
		note := once("note")
		note.spec.Transactional = true
		b := newBench(t, asks("look", "send", "note", "put", "judged"), says("Done."))
		b.store.trigger, b.freshness = turnkeeper.TriggerSchedule, pastCalls{}
		b.bounds.FreshnessWindow = time.Hour
		return b.with(read("look"), once("send"), note, newTool("put", turnkeeper.EffectKeyed),
			approver{once("judged")})
	},
	"a search in a stored result": func(t *testing.T) *bench {
		b := extractBench(t, &extractor{}, "the answers")
		b.windows["aux/x"] = 32_000
		return b
	},
	"a handle": func(t *testing.T) *bench {
		b, _ := handleBench(t, turnkeeper.EffectOnce, anyStrings, asks("text"), asks(`taker {"a":"output:1[5:8]"}`),
			says("Done."))
		return b
	},
	"more of a stored result": func(t *testing.T) *bench {
		runs := 0
		more := asksFor("get_continuation", "c2", `{"tool_call_id":"c1"}`)
		return pagedBench(t, library, &runs, asksFor("big", "c1", `{}`), more, says("Done."))
	},
	"a large result": func(t *testing.T) *bench {
		return newBench(t, asks("big"), says("Done.")).with(read("big").does(func(context.Context,
			tools.Call) (tools.Result, error) {
			return tools.Result{Body: strings.NewReader(strings.Repeat("words and more words. ", 1<<16))}, nil
		}))
	},
	"a call that lasts": func(t *testing.T) *bench {
		return newBench(t, asks("send"), says("Done.")).with(once("send").does(func(context.Context,
			tools.Call) (tools.Result, error) {
			time.Sleep(hangTime + 100*time.Millisecond) // whatever becomes of its context
			return tools.Result{Text: "sent"}, nil
		}))
	},
	"a sub-agent": func(t *testing.T) *bench {
		b := newBench(t, asks(`spawn_agent {"agent":"scout","task":"find it"}`))
		b.def.SubAgents = []string{"scout"}
		return b
	},
	"a call elsewhere": func(t *testing.T) *bench {
		far := once("far")
		far.spec.Detached, far.spec.Timeout = true, time.Hour
		return asyncBench(t, asks("far"), asks("wait_for_tool_output {}")).with(far)
	},
	"a tool that asks a model": func(t *testing.T) *bench {
		return newBench(t, asks("asker"), says("a rhyme"), says("Done.")).with(sampling(question("moon")))
	},
	"a model in doubt": func(t *testing.T) *bench { return newBench(t, says("ok"), says("Done.")).inDoubt() },
	"a summary":        func(t *testing.T) *bench { return talk(t, 12, summarises("a summary"), says("Done.")) },
	"a lost worker": func(t *testing.T) *bench {
		found := func() (tools.Result, bool, error) { return tools.Result{Text: "booked"}, true, nil }
		b := newBench(t, asks("send")).with(&reconciler{once("send"), found})
		b.lose(agentturn.PointEffectDone, 1)
		b.script.Add(says("Done."))
		return b
	},
	"a lost worker that had other tools": func(t *testing.T) *bench {
		b := newBench(t, asks("look")).with(read("look"))
		b.def.Durability = "step"
		b.lose(agentturn.PointModelBefore, 2)
		b.script.Add(says("Done."))
		return b.with(read("new"))
	},
	"a lost worker of a call in the background": func(t *testing.T) *bench {
		slow := lasting("slow", turnkeeper.EffectKeyed, 20*time.Second).withBackground()
		b := asyncBench(t, asks("slow", "look")).with(slow, read("look"))
		b.lose(agentturn.PointModelBefore, 2)
		b.script.Add(asks("wait_for_tool_output {}"), says("Done."))
		return b
	},
}

// stopCauses are the ways in which the context of a turn ends, and what becomes of the turn then.
var stopCauses = map[string]struct {
	cause error // nil: the wall
	ends  func(turnlog.Outcome, error) bool
}{
	"a cancel": {agentturn.ErrCancelled, func(o turnlog.Outcome, err error) bool {
		return err == nil && o.State == turnkeeper.TurnCancelled
	}},
	"a shutdown": {agentturn.ErrShutdown, func(o turnlog.Outcome, err error) bool {
		return err == nil && o.State == turnkeeper.TurnQueued && o.Error == agentturn.ErrShutdown.Error()
	}},
	"a lost lease": {turnkeeper.ErrFenced, func(_ turnlog.Outcome, err error) bool {
		return errors.Is(err, turnkeeper.ErrFenced)
	}},
	"the wall": {nil, func(o turnlog.Outcome, err error) bool {
		return err == nil && o.StopReason == turnkeeper.StopMaxDuration
	}},
}

// stopTime is the longest time from the end of a turn's context to the end of its dispatch, if its surroundings hang in
// one call. It is the timeout for late results, and that for settling the budget.
const stopTime = 7 * time.Second

// TestAStopEndsWhateverHangs lets each call of a turn's surroundings hang, one in each run, until the turn is stopped.
// The call learns of it, the dispatch ends soon, as the cause of the stop says, and what is written keeps the rules of
// the journal.
func TestAStopEndsWhateverHangs(t *testing.T) {
	hung := map[string]bool{}
	for _, port := range surroundings {
		for m := range port.NumMethod() {
			if method := port.Method(m); method.Type.NumIn() > 0 { // else it gets no context
				hung[method.Name] = false
			}
		}
	}
	causes, runs := slices.Sorted(maps.Keys(stopCauses)), 0
	for _, name := range slices.Sorted(maps.Keys(hangingTurns)) {
		calls := callsIn(t, name)
		for _, method := range slices.Sorted(maps.Keys(calls)) {
			for n := range calls[method] {
				hung[method] = true
				for _, cause := range testrun.Sample(slices.Concat(causes[runs%len(causes):],
					causes[:runs%len(causes)]), 1) {
					t.Run(fmt.Sprintf("%s/%s %d/%s", name, method, n+1, cause), func(t *testing.T) {
						came := false // another order of the turn's goroutines may write less often
						for try := 0; !came && try < 20; try++ {
							synctest.Test(t, func(t *testing.T) {
								came = hangIn(t, name, &snag{method: method, n: n + 1}, cause)
							})
						}
						if !came {
							t.Error("the call did not come")
						}
					})
				}
				runs++
			}
		}
	}
	for method, tried := range hung {
		if !tried {
			t.Errorf("no turn called %s", method)
		}
	}
}

// callsIn returns how often a turn calls each method of its surroundings. It is plain, or fenced while a tool runs.
func callsIn(t *testing.T, name string) (calls map[string]int) {
	for _, method := range []string{"", "Late"} {
		synctest.Test(t, func(t *testing.T) {
			s := &snag{method: method}
			hangIn(t, name, s, "a lost lease")
			if calls == nil {
				calls = s.calls
			}
			calls["Late"] = s.calls["Late"]
		})
	}
	return calls
}

// hangIn runs a turn with a snag, which is stopped once that has hung for a while. It returns whether the call came
// that is to hang.
func hangIn(t *testing.T, name string, s *snag, cause string) bool {
	b := hangingTurns[name](t)
	s.calls = map[string]int{}
	s.surround(b)
	b.wall = 50 * time.Second
	var stopped atomic.Value // a time.Time
	stopped.Store(time.Now().Add(b.wall))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if why := stopCauses[cause].cause; why != nil {
		s.stop = func() { stopped.Store(time.Now()); cancel(why) }
	}
	if s.method == "Late" { // which hangs after the stop
		time.AfterFunc(hangTime, func() { stopped.Store(time.Now()); cancel(turnkeeper.ErrFenced) })
		s.stop, cause = nil, "a lost lease"
	}
	record, journal := b.store.dispatch()
	outcome, err := b.resume(ctx, record, snaggedJournal{journal, s})
	late := time.Since(stopped.Load().(time.Time))
	b.check()
	time.Sleep(time.Minute) // until tools that were left behind have ended
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.n == 0 || !s.hit:
	case s.deaf:
		t.Error("the context of the call did not end")
	// it has a timeout of its own
	case late < 0 && (cause == "the wall" && outcome.State == turnkeeper.TurnSucceeded || s.method == "Settle"):
	case late < 0 || late > stopTime || !stopCauses[cause].ends(outcome, err):
		t.Errorf("%s after the stop: %+v, %v", late, outcome, err)
	}
	return s.hit
}
