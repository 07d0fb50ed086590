package inferencetest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/inference"
)

// A Target is the endpoint of a Provider under test.
type Target struct {
	Name     string // of the provider
	BaseURL  string
	APIKey   string
	Header   map[string]string
	IDs9     bool // tool-call ids must be exactly 9 letters and digits
	NoStream bool
	Idle     time.Duration // maximum time without a byte
}

// A Factory returns the Provider under test for a target.
type Factory func(t *testing.T, target Target) inference.Provider

// RunProviderSuite tests a Provider of an endpoint that speaks a wire. It has a named case for every known deviation of
// providers from the protocol. Groups of cases that make no sense on the wire are skipped, and say why.
func RunProviderSuite(t *testing.T, wire *Wire, factory Factory) {
	s := suite{factory, wire}
	t.Run("answers in any wire", s.anyAnswers)
	group(s, t, "answers in chunks", s.answers)
	t.Run("refusals", s.refusals)
	t.Run("broken answers in any wire", s.anyBroken)
	group(s, t, "broken chunks", s.broken)
	t.Run("failures that a request may cause", s.causes)
	t.Run("retry hints", s.retryHints)
	group(s, t, "requests for completions", s.requests)
	t.Run("replay", s.replay)
	t.Run("connections", s.connections)
	t.Run("secrets", s.secrets)
}

// group runs a group of cases, unless it makes no sense on the wire.
func group(s suite, t *testing.T, name string, run func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		if why, skips := s.wire.Skips[name]; skips {
			t.Skip("not on the wire " + s.wire.Name + ": " + why)
		}
		run(t)
	})
}

const (
	suiteProvider = "suite"
	suiteKey      = "sk-suite-0123456789abcdef"
	suiteIdle     = time.Minute
)

type suite struct {
	factory Factory
	wire    *Wire
}

// provider returns a Provider for a server that runs until the test ends.
func (s suite) provider(t *testing.T, server *Server, change ...func(*Target)) inference.Provider {
	t.Helper()
	target := Target{Name: suiteProvider, BaseURL: server.Start(t), APIKey: suiteKey, Idle: suiteIdle}
	for _, f := range change {
		f(&target)
	}
	return s.factory(t, target)
}

func wholeAnswers(t *Target) { t.NoStream = true }

// plainRequest returns a simple request with tools.
func plainRequest() inference.Request {
	return inference.Request{
		Model:    "m",
		Messages: []inference.Message{{Role: inference.RoleUser, Text: "hello"}},
		Tools: []inference.ToolDefinition{
			{Name: "clock", Description: "Tells the time.", Parameters: []byte(`{"type":"object","properties":{}}`)},
			{Name: "read_file", Parameters: []byte(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
		},
	}
}

// An outcome holds the results of a Generate that the suite compares.
type outcome struct {
	Text, Reasoning, Refusal, Finish, Cost string

	Calls []inference.Call
	Doubt bool // the calls may not be those of the model
	Usage turnkeeper.Usage
	Class inference.Class // empty: it succeeded
	Code  string
}

// generate makes one call, and checks what all calls have in common: one request, an *Error for
// each failure, and deltas that add up to the answer.
func (s suite) generate(t *testing.T, server *Server, p inference.Provider, req inference.Request) outcome {
	t.Helper()
	before := len(server.Requests())
	var streamed streamed
	res, err := p.Generate(t.Context(), req, streamed.add)
	if made := len(server.Requests()) - before; made > 1 {
		t.Errorf("one Generate made %d requests", made)
	}
	if err != nil {
		failure, ok := err.(*inference.Error) //nolint:errorlint // not a wrapped one
		if !ok {
			t.Fatalf("the error is a %T: %v", err, err)
		}
		if failure.Provider != suiteProvider || failure.Model != req.Model {
			t.Errorf("the error names %q and %q", failure.Provider, failure.Model)
		}
		return outcome{Class: failure.Class, Code: failure.Code, Usage: failure.Usage}
	}
	if res.Provider != suiteProvider {
		t.Errorf("answered by %q", res.Provider)
	}
	streamed.check(t, res)
	return outcome{
		Text: res.Text, Reasoning: res.Reasoning, Refusal: res.Refusal, Finish: res.FinishReason, Cost: res.Cost,
		Calls: res.Calls, Doubt: res.Doubt != "", Usage: res.Usage,
	}
}

func compare(t *testing.T, want, got outcome) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// streamed accumulates deltas.
type streamed struct {
	text, reasoning strings.Builder
	names           []string
	arguments       []string
	faults          []string
}

func (s *streamed) add(d inference.Delta) {
	switch d.Kind {
	case inference.DeltaText:
		s.text.WriteString(d.Text)
	case inference.DeltaThinking:
		s.reasoning.WriteString(d.Text)
	case inference.DeltaTool:
		if d.Index == len(s.names) && d.Name != "" {
			s.names, s.arguments = append(s.names, d.Name), append(s.arguments, "")
		} else if d.Index >= len(s.names) || d.Name != "" {
			s.faults = append(s.faults, "a call begins without a name, out of order, or twice")
			return
		}
		s.arguments[d.Index] += d.Text
	}
}

func (s *streamed) check(t *testing.T, res inference.Response) {
	t.Helper()
	var names, arguments []string
	for _, c := range res.Calls {
		names, arguments = append(names, c.Name), append(arguments, c.Arguments)
	}
	type sum struct {
		Text, Reasoning  string
		Names, Arguments []string
		Faults           []string
	}
	want := sum{res.Text, res.Reasoning, names, arguments, nil}
	got := sum{s.text.String(), s.reasoning.String(), s.names, s.arguments, s.faults}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("deltas do not add up to the answer (-answer +deltas):\n%s", diff)
	}
}

// delta returns the JSON of a chunk with a delta.
func delta(members string) string {
	return `{"id":"x","model":"m","choices":[{"index":0,"delta":` + members + `,"finish_reason":null}]}`
}

// toolDelta returns the JSON of a chunk with a piece of a tool call.
func toolDelta(members string) string { return delta(`{"tool_calls":[` + members + `]}`) }

// finish returns the JSON of the chunk that ends an answer.
func finish(reason string) string {
	return `{"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

// message returns a completion that is not streamed.
func message(members, reason string) Reply {
	return Status(http.StatusOK, `{"id":"x","model":"m","choices":[{"index":0,"message":`+members+`,"finish_reason":"`+
		reason+`"}]}`)
}

func called(id, name, arguments string) inference.Call {
	return inference.Call{ID: id, Name: name, Arguments: arguments}
}

func cut(c inference.Call) inference.Call {
	c.Truncated = true
	return c
}

// within returns a context with a generous timeout for something that should happen at once.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
