package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/golden"
	"turnkeeper/tools"
)

// encoded returns a value as JSON, or the text of an error.
func encoded(v any) string {
	if err, failed := v.(error); failed {
		return err.Error()
	}
	text, err := sorted(v)
	if err != nil {
		return err.Error()
	}
	return text
}

func formParams(message, schema string) *sdk.ElicitParams {
	p := &sdk.ElicitParams{Message: message}
	if schema != "" {
		_ = json.Unmarshal([]byte(schema), &p.RequestedSchema)
	}
	return p
}

// TestFormsOfServers records how each form is answered without a person, and what a person is asked.
func TestFormsOfServers(t *testing.T) {
	t.Parallel()
	link := formParams("pay", "")
	link.Mode, link.URL = "url", "https://h"
	mode := formParams("pay", `{"type":"object"}`)
	mode.Mode = "form"
	address := formParams("pay", `{"type":"object"}`)
	address.URL = "https://h"
	forms := map[string]*sdk.ElicitParams{
		"an address": link, "a form": mode, "a form with an address": address, "no schema": formParams("which?", ""),
		"defaults": formParams("who?",
			`{"type":"object","properties":{"name":{"type":"string","default":"Ada"},"age":{"type":"integer"},"sure":{"type":"boolean","default":false}}}`),
		"a needed one": formParams("who?",
			`{"type":"object","properties":{"name":{"type":"string","default":"Ada"}},"required":["name"]}`),
		"without it": formParams("who?",
			`{"type":"object","properties":{"name":{"type":"string","default":"Ada"},"age":{"type":"integer"}},"required":["name","age"]}`),
		"needs a number": formParams("who?",
			`{"type":"object","properties":{"name":{"type":"string","default":"Ada"}},"required":[1]}`),
		"a list":          formParams("who?", `[]`),
		"a broken schema": formParams("who?", `{"type":"array"}`),
		"a null":          formParams("who?", `null`),
	}
	var said strings.Builder
	for _, name := range sortedKeys(forms) {
		core, logs := observer.New(zap.InfoLevel)
		told := ""
		answered := &session{server: Server{Name: "h", AcceptDefaults: true}, log: zap.New(core),
			progress: map[string]func(string){"t": func(text string) { told = text }}}
		fmt.Fprintf(&said, "%s\n  with its defaults: %s\n  told: %s\n", name,
			encoded(answered.answerForm(forms[name])), told)
		if all := logs.All(); len(all) != 1 || all[0].Message != "an MCP server "+strings.TrimPrefix(told,
			"the server ") {
			t.Errorf("%s: logged %v", name, all)
		}
		declining := &session{server: Server{Name: "h"}, log: zap.NewNop()}
		if got := encoded(declining.answerForm(forms[name])); got != `{"action":"decline"}` {
			t.Errorf("%s, by default: %s", name, got)
		}
		f, fault := Server{Name: "h"}.formOf(forms[name])
		fmt.Fprintf(&said, "  a person: %q %s %s\n", f.message, encoded(f.schema), fault)
	}
	golden.File(t, "testdata/forms.txt", said.String())
}

// TestWhatAPersonIsAsked records the request for one form and for several: the question, the schema of the answer, and
// what is stored for the rest of the call.
func TestWhatAPersonIsAsked(t *testing.T) {
	t.Parallel()
	s := &session{server: Server{Name: "h"}}
	own := map[string]any{"type": "object", "title": "T"}
	explained := map[string]any{"type": "object", "description": "D"}
	given := sdk.InputResponseMap{"given": &sdk.ElicitResult{Action: actionDecline}}
	asker := &sampler{calls: 3, tokens: 70}
	var said strings.Builder
	for _, c := range []struct {
		forms map[string]form
		given sdk.InputResponseMap
		asker *sampler
	}{
		{map[string]form{"q": {"Which?", own}}, nil, nil},
		{map[string]form{"q": {"Which?", own}}, given, asker},
		{map[string]form{"b": {"Which?", own}, "a": {"Who?", explained}}, given, asker},
	} {
		request, ok := errors.AsType[*tools.InputRequest](s.inputRequest("opaque", c.given, c.forms, c.asker))
		if !ok {
			t.Fatal("nobody is asked")
		}
		fmt.Fprintf(&said, "%s\n  schema %s\n  state %s\n", request.Question, request.Schema, request.State)
	}
	golden.File(t, "testdata/questions.txt", said.String())
	if len(own) != 2 || len(explained) != 2 {
		t.Errorf("a server's schema was changed: %v, %v", own, explained)
	}
	if calls, tokens := asker.left(); calls != 3 || tokens != 70 {
		t.Errorf("what is left: %d, %d", calls, tokens)
	}
}

// TestHowACallGoesOn checks the responses to a server's requests, for each answer of a person, and that a resumed call
// has no more of the models than was left.
func TestHowACallGoesOn(t *testing.T) {
	t.Parallel()
	const one = `{"state":"opaque","responses":{"given":{"action":"decline"}},"forms":["q"],"samplings":2,"tokens":50}`
	two := strings.Replace(one, `["q"]`, `["q","r"]`, 1)
	for _, c := range []struct{ state, answer, denied, without string }{
		{one, `{"seat":1}`, "", `{"given":{"action":"decline"},"q":{"action":"accept","content":{"seat":1}}}`},
		{one, "", "denied", `{"given":{"action":"decline"},"q":{"action":"decline"}}`},
		{one, "", "", `{"given":{"action":"decline"},"q":{"action":"cancel"}}`},
		{two, `{"q":{"seat":1},"r":{}}`, "",
			`{"given":{"action":"decline"},"q":{"action":"accept","content":{"seat":1}},"r":{"action":"accept"}}`},
		{two, `{"q":{"seat":1}}`, "",
			`{"given":{"action":"decline"},"q":{"action":"accept","content":{"seat":1}},"r":{"action":"cancel"}}`},
		{two, "", "denied", `{"given":{"action":"decline"},"q":{"action":"decline"},"r":{"action":"decline"}}`},
	} {
		input := &tools.Input{State: c.state, Denied: c.denied != ""}
		if c.answer != "" {
			input.Answer = json.RawMessage(c.answer)
		}
		asker := &sampler{calls: 9, tokens: 90}
		r, err := (&tool{}).resume(input, asker)
		if err != nil {
			t.Fatal(err)
		}
		p := &sdk.CallToolParams{}
		r.into(p)
		if got := encoded(p.InputResponses); got != c.without || p.RequestState != "opaque" || asker.calls != 2 ||
			asker.tokens != 50 {
			t.Errorf("%s with %q%s: %s, state %q, %d calls and %d tokens left\nwant %s", c.state, c.answer, c.denied,
				got, p.RequestState, asker.calls, asker.tokens, c.without)
		}
	}
	fresh := &sampler{calls: 1, tokens: 10}
	if _, err := (&tool{}).resume(&tools.Input{State: one}, fresh); err != nil || fresh.calls != 1 ||
		fresh.tokens != 10 {
		t.Errorf("with lower limits now: %d, %d, %v", fresh.calls, fresh.tokens, err)
	}
	for _, wrong := range []tools.Input{{State: "{"}, {State: one, Answer: json.RawMessage("{")}} {
		if r, err := (&tool{}).resume(&wrong, nil); err == nil || r != nil || !strings.Contains(err.Error(),
			"cannot be read") {
			t.Errorf("%+v: %v, %v", wrong, r, err)
		}
	}
	if r, err := (&tool{}).resume(nil, fresh); r != nil || err != nil {
		t.Errorf("a call that begins: %v, %v", r, err)
	}
}

// TestQuestionsOfServers records what a model is asked, for each question of a server.
func TestQuestionsOfServers(t *testing.T) {
	t.Parallel()
	const hi = `"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]`
	var said strings.Builder
	for _, text := range []string{
		`{` + hi + `}`, `{"maxTokens":-1,` + hi + `}`, `{"maxTokens":7,"temperature":0.5,"systemPrompt":"Be kind.",` +
			hi + `}`,
		`{"maxTokens":1073741825,` + hi + `}`, `{"messages":[]}`, `{"messages":[null]}`,
		`{"messages":[{"role":"user","content":[]}]}`,
		`{"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"user","content":{"type":"text","text":"c"}}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAE="}]}]}`,
		`{"messages":[{"role":"system","content":{"type":"text","text":"a"}}]}`,
		`{"toolChoice":{"mode":"none"},` + hi + `}`,
		`{"tools":[{"name":"x","inputSchema":{"type":"object"}}],` + hi + `}`,
	} {
		var p sdk.CreateMessageWithToolsParams //nolint:staticcheck // older protocols use it
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		question, fault := questionOf(&p)
		if fault != "" {
			question = tools.Sampling{}
		}
		fmt.Fprintf(&said, "%s\n  %s %s\n", text, encoded(question), fault)
	}
	golden.File(t, "testdata/samplings.txt", said.String())
	for _, c := range []struct {
		text, want string
		stops      []string
	}{
		{"a STOP b END c", "a ", []string{"END", "STOP"}}, {"a STOP b END c", "a ", []string{"STOP", "END"}},
		{"STOP", "", []string{"STOP"}},
		{"a", "a", []string{"", "b"}}, {"a", "a", nil},
	} {
		if got, found := cutAt(c.text, c.stops); got != c.want || found != (c.text != c.want) {
			t.Errorf("%q cut at %q: %q, %t", c.text, c.stops, got, found)
		}
	}
}

// TestWhatACallMayStillAsk checks the limits of a call's questions: which refusal is noted, whose questions wait, and
// which call pays.
func TestWhatACallMayStillAsk(t *testing.T) {
	t.Parallel()
	if newSampler(t.Context(), Server{}, tools.Call{Sample: func(context.Context,
		tools.Sampling) (tools.Sampled, error) {
		return tools.Sampled{}, nil
	}}) != nil {
		t.Error("models may be asked although the server may not ask them")
	}
	var asked []int64
	a := newSampler(t.Context(), Server{Sampling: Sampling{Allow: true, MaxCalls: 3, MaxTokens: 10}},
		tools.Call{TurnID: 5, Sample: func(_ context.Context, s tools.Sampling) (tools.Sampled, error) {
			asked = append(asked, s.Tokens)
			return tools.Sampled{Tokens: 6}, errors.New("cut")
		}})
	if a.turn != 5 || a.spent() {
		t.Errorf("a fresh call: %+v", a)
	}
	refusals := ""
	for range 4 {
		why, first := a.take()
		refusals += fmt.Sprintf("%q %t\n", why, first)
		_, _ = a.ask(t.Context(), tools.Sampling{})
	}
	const over = "the call has used up the tokens that it may take (max_sampling_tokens)"
	if want := fmt.Sprintf("%[1]q false\n%[1]q false\n%[2]q true\n%[2]q false\n", "", over); refusals != want {
		t.Errorf("the refusals are\n%swant\n%s", refusals, want)
	}
	if fmt.Sprint(asked) != "[10 4]" || !a.spent() {
		t.Errorf("the models were asked with %v tokens left; spent: %t", asked, a.spent())
	}
	spent, fresh := &sampler{turn: 5}, &sampler{turn: 5, calls: 1}
	s := &session{server: Server{Sampling: Sampling{Allow: true}}}
	stop := s.answering(spent)
	if got, why := s.asker(); got != spent || why != "" {
		t.Errorf("alone: %v, %q", got, why)
	}
	s.answering(fresh)
	if got, _ := s.asker(); got != fresh {
		t.Error("a call that has used up its questions pays, and another one has some left")
	}
	stop()
	if len(s.samplers) != 1 || s.samplers[0] != fresh {
		t.Errorf("after the end of a call: %d", len(s.samplers))
	}
	other := s.answering(&sampler{turn: 6})
	if _, why := s.asker(); !strings.HasPrefix(why, "calls of several turns run in this session") {
		t.Errorf("of two turns: %q", why)
	}
	other()
	s.answering(nil)()
	unlimited := newSampler(t.Context(), Server{Sampling: Sampling{Allow: true, MaxCalls: 1}},
		tools.Call{Sample: a.sample})
	if unlimited.spent() || unlimited.bounded {
		t.Error("without a limit of tokens, there are none left")
	}
}
