package views_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// both returns the views of a filled and of an empty value.
func both[N, V any](view func(N) V) any {
	var empty N
	return views.All([]N{golden.Filled[N](100), empty}, view)
}

// cases returns the views of values.
func cases[N, V any](view func(N) V, values ...N) any { return views.All(values, view) }

// change returns a filled value after a change.
func change[N any](f func(*N)) N { return golden.With(100, f) }

func shown() map[string]any {
	agent := turnkeeper.AgentRegistration{
		Name:       "clerk",
		Definition: []byte("---\ntools: [clock, order]\nsub_agents: [scout]\nmcp_servers: {files: [read], mail: [send]}\n---\nHi.\n"),
	}
	schedules := []turnkeeper.Schedule{{Agent: "clerk", Name: "one"}, {Agent: "other", Name: "two"}, {Agent: "clerk",
		Name: "three"}}
	levels := operate.Levels{Agents: []operate.AgentLevel{{Agent: "other", Held: 1}, {Agent: "clerk", Held: 2}}}
	priority := 7
	return map[string]any{
		"OfWholeAgent": []any{
			views.OfWholeAgent(agent, schedules, levels),
			views.OfWholeAgent(turnkeeper.AgentRegistration{Name: "odd", Definition: []byte("---\nnone\n---\n")},
				schedules, levels),
		},
		"OfAside": both(views.OfAside),
		"OfAsk": cases(views.OfAsk, golden.Filled[operate.Ask](100), operate.Ask{}, change(func(a *operate.Ask) {
			a.Arguments, a.Schema, a.Answer, a.Edited = `{"a":1}`, `{"b":2}`, `"c"`, `{"d":3}`
			a.Call.Ordinal, a.Path[1].Call.Ordinal = 0, 0
		})),
		"OfOpenedAsk": cases(views.OfOpenedAsk, golden.Filled[outbox.OpenedAsk](100), outbox.OpenedAsk{},
			change(func(o *outbox.OpenedAsk) {
				o.Arguments, o.Schema = `{"a":1}`, `{"b":2}`
			})),
		"AskPath":     views.AskPath(7),
		"OfDiagnosis": both(views.OfDiagnosis),
		"Millis":      cases(views.Millis, -time.Second, 0, 1999*time.Microsecond, 2*time.Second),
		"OfEvent":     both(views.OfEvent),
		"OfLevels":    both(views.OfLevels),
		"OfPin":       cases(views.OfPin, nil, new(golden.Filled[operate.Pin](100)), new(operate.Pin)),
		"OfAgentLevel": cases(views.OfAgentLevel, golden.Filled[operate.AgentLevel](100),
			change(func(a *operate.AgentLevel) {
				a.Used.Tokens, a.Used.TokenLimit, a.Used.Calls, a.Used.CallLimit = 25, 100, 3, 4
				a.Rules = survival.Rules{
					survival.Critical: {NoSchedules: true}, survival.Low: {MinPriority: &priority},
					survival.Normal: {Models: []string{"a", "b"}},
				}
			}), operate.AgentLevel{}),
		"OfMessage":     both(views.OfMessage),
		"OfExchange":    both(views.OfExchange),
		"OfReply":       both(views.OfReply),
		"OfPushedReply": both(views.OfPushedReply),
		"EndOfReply":    both(views.EndOfReply),
		"OfReplyCalls":  both(views.OfReplyCalls),
		"OfModel": cases(views.OfModel, golden.Filled[modelhealth.Health](100),
			change(func(h *modelhealth.Health) { h.Probe = "" }),
			modelhealth.Health{Model: "unused"}, modelhealth.Health{Agents: []string{"a"}},
			modelhealth.Health{Agents: []string{"a"}, Asked: true}),
		"ErrorClasses":  views.ErrorClasses(),
		"OfBulkRetried": both(views.OfBulkRetried),
		"OfLane": cases(views.OfLane, golden.Filled[operate.LaneView](100),
			change(func(l *operate.LaneView) { l.OpenTurn = 0 }),
			operate.LaneView{}, operate.LaneView{OpenTurn: 7, Remaining: -time.Second}),
		"OfSchedule": cases(views.OfSchedule, golden.Filled[turnkeeper.Schedule](100), turnkeeper.Schedule{},
			change(func(s *turnkeeper.Schedule) { s.PausedAt, s.CronOverride = time.Time{}, "" }),
			change(func(s *turnkeeper.Schedule) { s.PausedAt, s.Active = time.Time{}, false })),
		"OfScheduler": both(views.OfScheduler),
		"OfWorker":    both(views.OfWorker),
		"OfAgent":     both(views.OfAgent),
		"OfCancelled": both(views.OfCancelled),
		"OfFinished":  both(views.OfFinished),
		"OfRetried": []views.Retried{views.OfRetried(5, golden.Filled[operate.Retried](100)), views.OfRetried(5,
			operate.Retried{Message: 5})},
		"OfRequest": cases(views.OfRequest, nil, new(golden.Filled[turnkeeper.Recipe](100)),
			new(turnkeeper.Recipe)),
		"OfRound":         both(views.OfRound),
		"OfFailedAttempt": both(views.OfFailedAttempt),
		"OfCall": cases(views.OfCall, golden.Filled[turnkeeper.ToolCall](100), turnkeeper.ToolCall{},
			change(func(c *turnkeeper.ToolCall) { c.RunArgs = "" })),
		"OfOutput":    both(views.OfOutput),
		"Scopes":      views.Scopes(),
		"OfAgentTree": both(views.OfAgentTree),
		"OfSubAgent":  both(views.OfSubAgent),
		"OfUsage":     both(views.OfUsage),
		"OfUnderWay": cases(views.OfUnderWay, nil, new(golden.Filled[turnkeeper.UnderWay](100)),
			new(turnkeeper.UnderWay)),
		"OfSilence": cases(views.OfSilence, nil, new(golden.Filled[turnkeeper.Silence](100)),
			new(turnkeeper.Silence)),
		"OfTurn":        both(views.OfTurn),
		"OfDispatch":    both(views.OfDispatch),
		"OfAwaitedCall": both(views.OfAwaitedCall),
		"OfWholeTurn":   both(views.OfWholeTurn),
		"OfWait":        both(views.OfWait),
		"OfTally":       both(views.OfTally),
		"OfWebhook":     both(views.OfWebhook),
		"OfDelivery":    both(views.OfDelivery),
	}
}

// TestEveryView compares the JSON of filled and of empty values with testdata: a field with another field's value,
// one that is missing,
// and a null that is none are seen.
func TestEveryView(t *testing.T) {
	t.Parallel()
	all := shown()
	var names []string
	for name, view := range all {
		names = append(names, name)
		text, err := json.MarshalIndent(view, "", " ")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = string(text)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s: %s\n", name, all[name])
	}
	golden.File(t, "testdata/views.txt", b.String())
	others := []string{"All", "OrNull", "SentFields", "ForSender", "CanCombine"} // the other tests call them
	for _, name := range exported(t) {
		if !slices.Contains(names, name) && !slices.Contains(others, name) {
			t.Errorf("%s is not checked", name)
		}
	}
}

// exported returns the names of the package's functions.
func exported(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() &&
				!strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
