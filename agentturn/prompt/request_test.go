package prompt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

var agent = &agentdef.Definition{Name: "tester", Prompt: "You test."}

var model = prompt.Model{Provider: "main", Name: "model", Tokens: prompt.NewCounts(prompt.HeuristicTokens{}, "", nil)}

// turn returns a turn without rounds, after the given turns of its conversation.
func turn(history ...turnlog.Past) *turnlog.Record {
	return &turnlog.Record{Turn: turnkeeper.Turn{ID: 7}, Message: turnkeeper.Message{Body: "do it"}, History: history}
}

// past returns an earlier turn with one call followed by a text.
func past(id turnkeeper.TurnID, body, wireID, text, reply string) turnlog.Past {
	p := turnlog.Past{TurnID: id, Body: body, Reply: reply,
		Rounds: []turnkeeper.Round{round("hm", call("look", wireID, "seen "+body))}}
	if text != "" {
		p.Rounds = append(p.Rounds, turnkeeper.Round{Number: 2, Provider: "main", Text: text,
			Raw: []byte(`{"content":"raw"}`)})
	}
	return p
}

func round(text string, call turnkeeper.ToolCall) turnkeeper.Round {
	return turnkeeper.Round{Number: 1, Provider: "main", Text: text, Calls: []turnkeeper.ToolCall{call}}
}

func call(name, wireID, shown string) turnkeeper.ToolCall {
	return turnkeeper.ToolCall{
		Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, WireID: wireID, Name: name, Arguments: `{}`,
		State: turnkeeper.CallSucceeded, Shown: shown,
	}
}

func stateOf(t *testing.T, record *turnlog.Record, specs ...tools.Spec) *prompt.State {
	t.Helper()
	registry := &tools.Registry{}
	for _, spec := range specs {
		spec.Effect = turnkeeper.EffectNone
		if err := registry.Register(tools.Func(spec, func(context.Context, struct{}) (string, error) {
			return "", nil
		})); err != nil {
			t.Fatal(err)
		}
	}
	return prompt.NewState(record, agent, prompt.Offer{Registry: registry, Bounds: bounds.Default()},
		&prompt.Memory{})
}

func build(t *testing.T, s *prompt.State, rounds ...turnkeeper.Round) prompt.Request {
	t.Helper()
	request, err := s.Build(model, prompt.Moment{Rounds: rounds})
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestConversation(t *testing.T) {
	look := func(id string) []inference.Call { return []inference.Call{{ID: id, Name: "look", Arguments: `{}`}} }
	s := stateOf(t, turn(
		past(1, "one", "c1", "first", "first"),
		past(2, "two", "c1", "", "Tool results: 1 succeeded, 0 failed."),
		past(3, "three", "c3", "quiet", ""),
		turnlog.Past{TurnID: 4, Body: "four", Reply: "no tools"},
	), tools.Spec{Name: "look"})
	const user, assistant, tool = inference.RoleUser, inference.RoleAssistant, inference.RoleTool
	want := []inference.Message{
		{Role: user, Text: "one"},
		{Role: assistant, Text: "hm", Calls: look("turn-1-round-1-tool-1")},
		{Role: tool, CallID: "turn-1-round-1-tool-1", Tool: "look", Text: "seen one"},
		{Role: assistant, Text: "first"},
		{Role: user, Text: "two"},
		{Role: assistant, Text: "hm", Calls: look("turn-2-round-1-tool-1")},
		{Role: tool, CallID: "turn-2-round-1-tool-1", Tool: "look", Text: "seen two"},
		{Role: assistant, Text: "Tool results: 1 succeeded, 0 failed."},
		{Role: user, Text: "three"},
		{Role: assistant, Text: "hm", Calls: look("c3")},
		{Role: tool, CallID: "c3", Tool: "look", Text: "seen three"},
		{Role: assistant, Text: "quiet"},
		{Role: user, Text: "four"},
		{Role: assistant, Text: "no tools"},
		{Role: user, Text: "do it"},
		{Role: assistant, Calls: look("c1")},
		{Role: tool, CallID: "c1", Tool: "look", Text: "look ran"},
	}
	if diff := cmp.Diff(want, build(t, s, round("", call("look", "c1", "look ran"))).Messages[1:]); diff != "" {
		t.Error(diff)
	}
}

// TestAgentWithoutTools checks that a request without tools has no tool messages, because
// servers refuse those.
func TestAgentWithoutTools(t *testing.T) {
	s := stateOf(t, turn(past(1, "one", "c1", "first", "first")))
	want := []inference.Message{
		{Role: inference.RoleUser, Text: "one"},
		{Role: inference.RoleAssistant, Text: "hm"},
		{Role: inference.RoleUser,
			Text: "# Tool results\n\nEach line of a result begins with \"> \".\n\nlook:\n> seen one"},
		{Role: inference.RoleAssistant, Text: "first"},
		{Role: inference.RoleUser, Text: "do it"},
		{Role: inference.RoleAssistant, Text: "(asked for tools)"},
		{Role: inference.RoleUser,
			Text: "# Tool results\n\nEach line of a result begins with \"> \".\n\nsearch:\n> not found\n> Nothing was run."},
	}
	if diff := cmp.Diff(want, build(t, s, round("",
		call("search", "c1", "not found\nNothing was run."))).Messages[1:]); diff != "" {
		t.Error(diff)
	}
}

// TestTheWindowOfARequest checks that every part of a request is measured, including the
// offered tools.
func TestTheWindowOfARequest(t *testing.T) {
	windows := map[int]turnkeeper.Window{}
	for _, n := range []int{0, 40} {
		var specs []tools.Spec
		for i := range n {
			specs = append(specs, tools.Spec{Name: fmt.Sprint("tool_", i), Description: strings.Repeat("x", 1200)})
		}
		s := stateOf(t, turn(turnlog.Past{TurnID: 1, Body: "old", Reply: strings.Repeat("long ago ", 100)}), specs...)
		answer := inference.Response{Usage: turnkeeper.Usage{InputTokens: 10}}
		windows[n] = s.Answered(model, nil, build(t, s), answer).Recipe.Window
	}
	none, forty := windows[0], windows[40]
	if forty.Tools < 40*300 || none.Tools != 0 {
		t.Errorf("40 large tools take %d tokens, none %d", forty.Tools, none.Tools)
	}
	forty.Tools = 0
	if diff := cmp.Diff(none, forty); diff != "" {
		t.Errorf("the rest differs:\n%s", diff)
	}
	want := turnkeeper.Window{Size: 32768, Answer: 4096, Safety: 1638, System: none.System, History: 4 + 1 + 4 + 282,
		Turn: 4 + 2, Factor: 1, Reported: 10}
	if diff := cmp.Diff(want, none); diff != "" || none.System < 50 {
		t.Errorf("the window (-want +got):\n%s", diff)
	}
}

// TestToolsThatFillTheWindow checks a request whose tools leave no room for the turn.
func TestToolsThatFillTheWindow(t *testing.T) {
	s := stateOf(t, turn(), tools.Spec{Name: "big", Description: strings.Repeat("what it does ", 400)})
	small := model
	small.Window = 2000
	_, err := s.Build(small, prompt.Moment{})
	if failure, ok := errors.AsType[*inference.Error](err); !ok || failure.Class != inference.ClassContextOverflow {
		t.Errorf("error %v", err)
	}
}

// TestManyShortTurnsAreSummarised checks that a conversation of many short turns is
// summarised before the oldest turns are left out, and not at each turn.
func TestManyShortTurnsAreSummarised(t *testing.T) {
	summary, made, epochs := turnlog.Summary{}, []int{}, []int{}
	large := model
	large.Window = 100_000
	var all []turnlog.Past
	for n := range 200 {
		record := turn(all[max(0, len(all)-turnlog.PastTurns):]...)
		record.Turn.ID, record.Older, record.Summary = turnkeeper.TurnID(n+1), max(0, n-turnlog.PastTurns), summary
		s := stateOf(t, record)
		s.MissingParts(nil)
		request, err := s.Build(large, prompt.Moment{})
		if err != nil {
			t.Fatal(err)
		}
		if turns := s.ToSummarise(large, prompt.Moment{}, request); len(turns) > 0 {
			summary, made = turnlog.Summary{UpTo: turns[len(turns)-1].TurnID, Text: "They greeted."}, append(made, n+1)
			s.SetSummary(summary)
			if request, err = s.Build(large, prompt.Moment{}); err != nil {
				t.Fatal(err)
			}
		}
		if e := request.Recipe.Start; e != nil {
			epochs = append(epochs, n+1)
			if e.Omitted > 0 && turnkeeper.TurnID(e.Omitted) > summary.UpTo {
				t.Errorf("turn %d leaves out %d turns, and is told of those up to %d", n+1, e.Omitted, summary.UpTo)
			}
		}
		all = append(all, turnlog.Past{TurnID: record.Turn.ID, Body: "hi", Reply: "ho",
			Rounds: []turnkeeper.Round{{Number: 1, Text: "ho", Recipe: &request.Recipe}}})
	}
	if diff := cmp.Diff([]int{61, 91, 121, 151, 181}, made); diff != "" {
		t.Errorf("the turns that made summaries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append([]int{1}, made...), epochs); diff != "" {
		t.Errorf("the turns that began an epoch (-want +got):\n%s", diff)
	}
}

// TestWhyARequestCannotBeRebuilt checks that the error says in plain words why a request
// cannot be rebuilt.
func TestWhyARequestCannotBeRebuilt(t *testing.T) {
	record := turn()
	s := stateOf(t, record, tools.Spec{Name: "look", Description: "A tool of a test."})
	made := s.Answered(model, nil, build(t, s), inference.Response{})
	whole := map[string]string{}
	for _, part := range made.Parts {
		whole[part.SHA256] = part.Content
	}
	for name, c := range map[string]struct {
		number int
		change func(r *turnkeeper.Recipe, parts map[string]string)
		is     error
		says   string
	}{
		"nothing": {1, func(*turnkeeper.Recipe, map[string]string) {}, nil, ""},
		"round 0": {0, func(*turnkeeper.Recipe, map[string]string) {}, prompt.ErrNoRound,
			"there is no such round: turn 7 has 1"},
		"no such round": {2, func(*turnkeeper.Recipe, map[string]string) {}, prompt.ErrNoRound,
			"there is no such round: turn 7 has 1"},
		"another version": {1, func(r *turnkeeper.Recipe, _ map[string]string) {
			r.Version++
		}, prompt.ErrOtherRecord, "another release"},
		"a part is gone": {1, func(r *turnkeeper.Recipe, parts map[string]string) {
			delete(parts, r.Start.Tools)
		}, nil, "a part of the request is not stored: " + made.Recipe.Start.Tools},
		"a secret was masked": {1, func(r *turnkeeper.Recipe, parts map[string]string) {
			parts[r.Start.Tools] = strings.Replace(parts[r.Start.Tools], "test", "[redacted]", 1)
		}, nil, "not stored as it was sent, perhaps because a secret was masked"},
		"a summary is gone": {1, func(r *turnkeeper.Recipe, _ map[string]string) {
			r.Start.Summary = 5
		}, nil, "the summary of the turns up to 5 is not stored"},
		"a list of nonsense": {1, func(r *turnkeeper.Recipe, _ map[string]string) {
			r.Start.Dropped = "x"
		}, nil, `"x" is not a list of numbers`},
		"the epoch's first request is gone": {1, func(r *turnkeeper.Recipe, _ map[string]string) {
			r.Epoch.Turn, r.Start = 3, nil
		}, nil, "the first request of its epoch, round 1 of turn 3, is not stored"},
		"the first turn is gone": {1, func(r *turnkeeper.Recipe, _ map[string]string) {
			r.Start.Past = []turnkeeper.TurnID{3}
		}, nil, "turn 3, which the request shows, is not stored"},
		"no recipe": {1, nil, prompt.ErrNoRecipe, "the round has no recipe of its request"},
	} {
		t.Run(name, func(t *testing.T) {
			recipe, start, parts := made.Recipe, *made.Recipe.Start, maps.Clone(whole)
			recipe.Start = &start
			record.Rounds = []turnkeeper.Round{{Number: 1, Recipe: &recipe}}
			if c.change == nil {
				record.Rounds[0].Recipe = nil
			} else {
				c.change(&recipe, parts)
			}
			var summary turnkeeper.TurnID
			if name == "a summary is gone" {
				summary = 5
			}
			if got := prompt.SummaryOf(record, c.number); got != summary {
				t.Errorf("it shows the summary of the turns up to %d, want %d", got, summary)
			}
			rebuilt, err := prompt.Rebuild(record, agent, c.number, parts)
			if c.is != nil && !errors.Is(err, c.is) || (err == nil) != (c.says == "") || err != nil &&
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v", err)
			}
			if sent := inference.SentAs("", prompt.Canonical(rebuilt.Request)); err == nil &&
				sent.SHA256 != recipe.SHA256 {
				t.Errorf("it is made again as\n%s", prompt.Canonical(rebuilt.Request))
			}
		})
	}
}
