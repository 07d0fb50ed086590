package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// An asker is a server of the SDK, whose tool "book" asks for input. Nothing but the request connects the parts of a
// call.
type asker struct {
	*httptest.Server
	requests sdk.InputRequestMap
	again    bool // it asks again, whatever it is answered
	mu       sync.Mutex
	offered  []string // the capabilities of the client, call by call
	keys     []any    // the idempotency keys, call by call
}

func newAsker(t *testing.T, requests sdk.InputRequestMap) *asker {
	return newAskerWith(t, requests, &sdk.StreamableHTTPOptions{Stateless: true}) // as protocol 2026-07-28 is
}

func newAskerWith(t *testing.T, requests sdk.InputRequestMap, options *sdk.StreamableHTTPOptions) *asker {
	a := &asker{requests: requests}
	a.Server = httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		s := sdk.NewServer(&sdk.Implementation{Name: "asker", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "book", InputSchema: json.RawMessage(`{"type":"object"}`)}, a.book)
		return s
	}, options))
	t.Cleanup(a.Close)
	return a
}

func (a *asker) book(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var offered []byte
	if p := req.Session.InitializeParams(); p != nil {
		offered, _ = json.Marshal(p.Capabilities)
	}
	if meta := req.Params.Meta["io.modelcontextprotocol/clientCapabilities"]; meta != nil {
		offered, _ = json.Marshal(meta)
	}
	a.mu.Lock()
	a.offered, a.keys = append(a.offered, string(offered)),
		append(a.keys, req.Params.Meta["turnkeeper/idempotency-key"])
	a.mu.Unlock()
	if len(req.Params.InputResponses) == 0 || a.again {
		return &sdk.CallToolResult{InputRequests: a.requests, RequestState: "opaque é"}, nil
	}
	got, err := json.Marshal(req.Params.InputResponses)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s %s %s",
		req.Params.RequestState, req.Params.Arguments, got)}}}, nil
}

// run calls the tool with a client of its own, as a worker does that was just started.
func (a *asker) run(t *testing.T, input *tools.Input, settings ...func(*mcp.Server)) tools.RunResult {
	t.Helper()
	server := mcp.Server{Name: "h", URL: a.URL, ConnectTimeout: patience, AskForInput: true}
	for _, set := range settings {
		set(&server)
	}
	client := mcp.NewLimited(mcp.Config{Servers: []mcp.Server{server}}, forTests)
	defer client.Close()
	return tools.Execute(t.Context(), client.Tool("h", "book"),
		tools.Call{Lane: "lane", Arguments: json.RawMessage(`{"a":1}`), IdempotencyKey: "key", Input: input},
		tools.ExecuteOptions{Timeout: patience})
}

// asks runs the tool, which must ask for input.
func (a *asker) asks(t *testing.T, settings ...func(*mcp.Server)) *tools.InputRequest {
	t.Helper()
	got := a.run(t, nil, settings...)
	request, ok := errors.AsType[*tools.InputRequest](got.Err)
	if got.Outcome != tools.NeedsInput || !ok {
		t.Fatalf("%s: %s", got.Outcome, got.Result.Text)
	}
	return request
}

func ask(message, schema string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: message, RequestedSchema: json.RawMessage(schema)}
}

const seatSchema = `{"type":"object","properties":{"seat":{"type":"integer"}},"required":["seat"]}`

// One form is put to a person as it is. The call goes on in another process, with the answer or the lack of one.
func TestAServerAsksAPerson(t *testing.T) {
	t.Parallel()
	a := newAsker(t, sdk.InputRequestMap{"q": ask("Which seat?", seatSchema)})
	request := a.asks(t)
	var schema, want any
	if json.Unmarshal(request.Schema, &schema) != nil || json.Unmarshal([]byte(seatSchema), &want) != nil ||
		fmt.Sprint(schema) != fmt.Sprint(want) ||
		request.Question != "the MCP server h asks: Which seat?" {
		t.Errorf("it asks %q with %s", request.Question, request.Schema)
	}
	for _, c := range []struct {
		input tools.Input
		want  string
	}{
		{tools.Input{Answer: json.RawMessage(`{"seat":12345678901234567890}`)},
			`{"q":{"action":"accept","content":{"seat":12345678901234567000}}}`},
		{tools.Input{Denied: true}, `{"q":{"action":"decline"}}`},
		{tools.Input{}, `{"q":{"action":"cancel"}}`},
	} {
		c.input.N, c.input.State = 1, request.State
		if got := a.run(t, &c.input); got.Outcome != tools.Succeeded || got.Result.Text != `opaque é {"a":1} `+c.want {
			t.Errorf("%s: %s", got.Outcome, got.Result.Text)
		}
	}
	for i, key := range a.keys {
		if key != "key" || !strings.Contains(a.offered[i], `"elicitation":{"form":{}}`) {
			t.Errorf("call %d has the key %v, and offers %s", i, key, a.offered[i])
		}
	}
}

// Several forms are one question. Other requests of the result are answered without a person, and the answers are kept.
func TestAServerAsksSeveralThings(t *testing.T) {
	t.Parallel()
	a := newAsker(t, sdk.InputRequestMap{
		"seat": ask("Which seat?", seatSchema), "meal": ask("Which meal?",
			`{"type":"object","description":"A meal.","properties":{"meal":{"type":"string"}}}`),
		"roots": &sdk.ListRootsParams{}, //nolint:staticcheck // deprecated
		"page": &sdk.ElicitParams{Mode: "url", URL: "https://example.org", Message: "Pay there.",
			ElicitationID: "1"},
	})
	request := a.asks(t, func(s *mcp.Server) { s.Roots = []string{"/srv"} })
	if request.Question != "the MCP server h asks: meal: Which meal?; seat: Which seat?" {
		t.Errorf("it asks %q", request.Question)
	}
	schema, err := tools.CompileSchema(request.Schema)
	if err != nil {
		t.Fatal(err)
	}
	for answer, valid := range map[string]bool{
		`{"seat":{"seat":1},"meal":{}}`: true, `{"seat":{"seat":1}}`: false, `{"seat":{},"meal":{}}`: false,
		`{"seat":{"seat":1},"meal":{},"page":{}}`: false,
	} {
		if _, fault := tools.CheckArguments(schema, answer); (fault == "") != valid {
			t.Errorf("%s: %q", answer, fault)
		}
	}
	got := a.run(t, &tools.Input{N: 1, State: request.State,
		Answer: json.RawMessage(`{"meal":{"meal":"soup"},"seat":{"seat":1}}`)})
	want := `opaque é {"a":1} {"meal":{"action":"accept","content":{"meal":"soup"}},"page":{"action":"decline"},` +
		`"roots":{"roots":[{"name":"/srv","uri":"file:///srv"}]},"seat":{"action":"accept","content":{"seat":1}}}`
	if got.Result.Text != want {
		t.Errorf("%s: %s", got.Outcome, got.Result.Text)
	}
}

// A person is not asked where the operator does not allow it, where the protocol cannot wait, or about what is no form.
func TestAPersonIsNotAsked(t *testing.T) {
	t.Parallel()
	form := sdk.InputRequestMap{"q": ask("Which seat?", seatSchema)}
	for name, c := range map[string]struct {
		requests sdk.InputRequestMap
		set      func(*mcp.Server)
		offers   bool
	}{
		"declined": {form, func(s *mcp.Server) { s.AskForInput = false }, false},
		"an address": {
			sdk.InputRequestMap{"q": &sdk.ElicitParams{Mode: "url", URL: "https://example.org", Message: "Pay there.",
				ElicitationID: "1"}}, func(*mcp.Server) {}, true,
		},
		"an old protocol":    {form, func(s *mcp.Server) { s.Protocol = "2025-11-25" }, true},
		"a schema of a list": {sdk.InputRequestMap{"q": ask("Which?", `{"type":"array"}`)}, func(*mcp.Server) {}, true},
		"a broken schema": {sdk.InputRequestMap{"q": ask("Which?",
			`{"type":"object","properties":{"a":{"$ref":"http://h/x"}}}`)}, func(*mcp.Server) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAskerWith(t, c.requests, &sdk.StreamableHTTPOptions{Stateless: name != "an old protocol"})
			got := a.run(t, nil, c.set)
			if want := `{"q":{"action":"decline"}}`; got.Outcome != tools.Succeeded ||
				!strings.HasSuffix(got.Result.Text, want) {
				t.Errorf("%s: %s", got.Outcome, got.Result.Text)
			}
			if strings.Contains(a.offered[0], "elicitation") != c.offers {
				t.Errorf("it is offered %s", a.offered[0])
			}
		})
	}
}

// A request for input that is too large to be stored fails its call.
func TestInputThatIsTooLarge(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 70<<10)
	a := newAsker(t, sdk.InputRequestMap{"q": ask("Which?", `{"type":"object","title":"`+large+`"}`)})
	if got := a.run(t, nil); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
		"a schema of more than 65536 bytes") {
		t.Errorf("%s: %s", got.Outcome, got.Result.Text)
	}
	a = newAsker(t, sdk.InputRequestMap{"q": ask(large, `{"type":"object"}`)})
	if got := a.asks(t); len(got.Question) > 2100 {
		t.Errorf("the question has %d bytes", len(got.Question))
	}
}

// If the server is gone when the call resumes, the call fails, and its result says what is unknown.
func TestAServerIsGoneWhenItGetsItsInput(t *testing.T) {
	t.Parallel()
	a := newAsker(t, sdk.InputRequestMap{"q": ask("Which seat?", seatSchema)})
	request := a.asks(t, func(s *mcp.Server) { s.Effect = turnkeeper.EffectOnce })
	a.Close()
	got := a.run(t, &tools.Input{N: 1, State: request.State, Answer: json.RawMessage(`{"seat":1}`)})
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
		"Nothing was run since the call asked for input") {
		t.Errorf("%s: %s", got.Outcome, got.Result.Text)
	}
}

// A server that asks again and again is answered five times, and once more for each question to a model that it may
// ask.
func TestAServerThatAsksAgainAndAgain(t *testing.T) {
	t.Parallel()
	for calls := range 3 {
		a := newAsker(t, sdk.InputRequestMap{"roots": &sdk.ListRootsParams{}}) //nolint:staticcheck // deprecated
		a.again = true
		got := a.run(t, nil, func(s *mcp.Server) {
			s.Sampling = mcp.Sampling{Allow: true, MaxCalls: calls, MaxTokens: 1000}
		})
		if want :=
			`tool error: the MCP server "h": the server asked for input again and again`; got.Outcome != tools.Failed ||
			got.Result.Text != want {
			t.Errorf("%s: %s", got.Outcome, got.Result.Text)
		}
		if want := 5 + calls; len(a.keys) != want {
			t.Errorf("the call was sent %d times, want %d", len(a.keys), want)
		}
	}
}
