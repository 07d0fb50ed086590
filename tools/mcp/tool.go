package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// metaKey is the key of the idempotency key in a call's _meta.
const metaKey = "turnkeeper/idempotency-key"

// A tool is a server's tool with a fixed definition: it does not change within a
// turn.
type tool struct {
	host *host
	name string // the server's name for it
	spec tools.Spec
	hash string // of the definition; empty: unknown
}

// newTool returns a tool with its current definition, or nil if that cannot be used.
func (h *host) newTool(name string) tools.Tool {
	e, known, _ := h.catalog.get(name)
	if known && e.fault != "" {
		return nil
	}
	t := &tool{host: h, name: name, spec: tools.Spec{
		Name:       mcpdef.ToolName(h.server.Name, name),
		Parameters: json.RawMessage(emptySchema),
		Timeout:    h.server.timeoutOf(name),
		Background: cmp.Or(h.server.Tools[name].Background, h.server.Background),
		Freshness:  h.server.Tools[name].Freshness, Repeat: h.server.Tools[name].Repeat,
		MaxResultChars: h.server.Tools[name].MaxResultChars,
		Approve:        cmp.Or(h.server.Tools[name].Approve, h.server.Approve),
		Flow:           h.server.Tools[name].Flow.Or(h.server.Flow),

		DefinitionLabels: h.server.Flow.Labels,
		AsksInput:        h.server.AskForInput,
	}}
	if !known {
		t.takeEffect(h.server.EffectOf(name, mcpdef.Definition{}))
		t.spec.Description = fmt.Sprintf(
			"The tool %s of the MCP server %s. What it does is not known, for the server has not told yet.", name,
			h.server.Name)
		return t
	}
	d := h.catalog.inUse(e.Tool)
	t.hash = d.Hash
	t.takeEffect(h.server.EffectOf(name, d))
	t.spec.Description, t.spec.Parameters = d.Description, json.RawMessage(d.Schema)
	if d.Description == "" {
		t.spec.Description = fmt.Sprintf("The tool %s of the MCP server %s.", name, h.server.Name)
	}
	return t
}

// takeEffect sets the effect, and the switches that only reads have.
func (t *tool) takeEffect(effect turnkeeper.Effect) {
	t.spec.Effect = effect
	if effect != turnkeeper.EffectNone || t.spec.AsksInput {
		return
	}
	own := t.host.server.Tools[t.name]
	t.spec.Early, t.spec.Cache, t.spec.CacheScope = own.Early, own.Cache, own.CacheScope
}

func (t *tool) Spec() tools.Spec { return t.spec }

// Run calls the tool. If the call certainly did not reach the server, or if the
// server no longer knows the session, it sends the call once more, in a new
// session. It resends a call whose answer was lost only if its effect allows
// that.
func (t *tool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	asker := newSampler(ctx, t.host.server, call)
	resumed, err := t.resume(call.Input, asker)
	if err != nil {
		return tools.Result{}, err
	}
	for again := false; ; again = true {
		a := t.attempt(ctx, call, resumed, asker)
		switch {
		case ctx.Err() != nil:
			return tools.Result{}, context.Cause(ctx)
		case a.err == nil:
			return a.result, nil
		case !again && (a.fate == notSent || a.fate == forgotten), !again && a.fate != failed &&
			t.spec.Effect.Repeatable():
			continue
		case a.fate == inDoubt && !t.spec.Effect.Repeatable():
			return tools.Result{},
				fmt.Errorf(
					"%w: the call was sent to the MCP server %q, and its answer was lost (%w). It may or may not have happened. Find out before you do it again",
					tools.ErrInDoubt, t.host.server.Name, a.err)
		case a.fate == inDoubt:
			return tools.Result{}, fmt.Errorf("the MCP server %q did not answer: %w", t.host.server.Name, a.err)
		}
		return tools.Result{}, a.err
	}
}

// A fate is what happened to a call without a result.
type fate int

const (
	failed    fate = iota // it was answered with an error, or trying again would not help
	notSent               // it certainly did not reach the server
	forgotten             // the server did not know the session, so it did not accept the call
	refused               // the server did not accept it
	inDoubt               // it was sent, and its answer was lost
)

type attempt struct {
	result tools.Result
	err    error
	fate   fate
}

// sessionOf returns the key of a call's session: its lane, and the user, so that the users of an agent with one lane
// share none.
func sessionOf(call tools.Call) turnkeeper.Lane {
	if call.User == "" {
		return call.Lane
	}
	return turnkeeper.ConversationKey{Agent: string(call.Lane), User: call.User}.Lane()
}

// attempt makes one attempt at a call.
func (t *tool) attempt(ctx context.Context, call tools.Call, resumed *resumption, asker *sampler) attempt {
	l, s, err := t.host.acquire(ctx, sessionOf(call))
	if err != nil && resumed != nil {
		err = fmt.Errorf("%w since the call asked for input", err)
	}
	if err != nil {
		return attempt{fate: failed, err: err}
	}
	defer s.finish()
	if fault := t.check(ctx, call); fault != "" {
		return attempt{result: tools.Result{Text: fault, IsError: true}}
	}
	params := &sdk.CallToolParams{Name: t.name, Arguments: call.Arguments, Meta: sdk.Meta{metaKey: call.IdempotencyKey}}
	if call.Progress != nil {
		token, stop := s.follow(call.Progress)
		// progress sent before the answer may be read after it
		defer func() { time.AfterFunc(s.limits.Progress, stop) }()
		params.SetProgressToken(token)
		t.tellChange(call)
	}
	stop := s.answering(asker)
	resumed.into(params)
	answer, err := s.call(ctx, params, asker, resumed != nil)
	stop()
	request, asks := errors.AsType[*tools.InputRequest](err)
	switch {
	case asks:
		l.worked()
		return attempt{fate: failed, err: request}
	case err != nil && ctx.Err() != nil:
		s.doubt()
		go s.probe()
		return attempt{fate: failed, err: context.Cause(ctx)}
	case err != nil:
		s.doubt()
		return t.lost(s, err)
	}
	l.worked()
	return attempt{result: resultOf(answer)}
}

// tellChange reports as progress that the definition differs from the pinned
// one.
func (t *tool) tellChange(call tools.Call) {
	if e, known, _ := t.host.catalog.get(t.name); known && e.Changed() {
		call.Progress("the definition of this tool has changed since it was pinned (turnctl mcp list)")
	}
}

// check returns why a call must not be sent, or "" if it may be. The server may
// have changed the definition that the model knows.
func (t *tool) check(ctx context.Context, call tools.Call) string {
	if why := t.host.catalog.refusal(ctx, t.name); why != "" {
		return "denied: " + why + ". Nothing was run."
	}
	e, known, _ := t.host.catalog.get(t.name)
	if !known || t.host.catalog.inUse(e.Tool).Hash == t.hash {
		return ""
	}
	_, fault := tools.CheckArguments(e.schema, string(call.Arguments))
	return fault
}

// maxInputRounds is the maximum number of input requests of a server in one call.
const maxInputRounds = 5

// errAsksTooMuch and errAsksModel end calls whose server requests too much input.
var (
	errAsksTooMuch = errors.New("the server asked for input again and again")
	errAsksModel   = errors.New("the server asked for an answer of a model, which is declined by the operator's policy")
)

// call sends a call, and answers the server's requests for input. A form for a
// person is a *tools.InputRequest. resumed says that the call goes on after one.
func (s *session) call(ctx context.Context, params *sdk.CallToolParams, asker *sampler,
	resumed bool) (*sdk.CallToolResult, error) {
	for leg := range maxInputRounds + s.server.Sampling.MaxCalls {
		traced, trace := withTrace(ctx)
		answer, err := s.sdk.CallTool(traced, params)
		if err != nil {
			return nil, &callError{err: err, begun: leg > 0, resumed: resumed, sent: trace.sent.Load(),
				status: int(trace.status.Load())}
		}
		if !answer.NeedsInput() {
			return answer, nil
		}
		responses, forms, err := s.answerInput(ctx, answer.InputRequests, asker)
		if err != nil {
			return nil, err
		}
		if len(forms) > 0 {
			s.note("asked for input, and a person is asked")
			return nil, s.inputRequest(answer.RequestState, responses, forms, asker)
		}
		params.InputResponses, params.RequestState = responses, answer.RequestState
	}
	return nil, errAsksTooMuch
}

// A callError is the error of a request without an answer, and how far it got.
type callError struct {
	err     error
	begun   bool // the server has answered before, with a request for input
	resumed bool // the call goes on with input of a person
	sent    bool
	status  int
}

// notTaken reports whether the server certainly has not started the call.
func (e *callError) notTaken() bool { return !e.begun && (!e.sent || refusedStatus(e.status)) }

func (e *callError) Error() string { return plainError(e.err).Error() }
func (e *callError) Unwrap() error { return e.err }

// nothing says that a call which the server did not accept had no effect.
func (e *callError) nothing() string {
	if e.resumed {
		return "The input of the person has not reached it. What the call did before it asked for that is not known"
	}
	return "Nothing was run"
}

// lost classifies a call without an answer, and retires its session if the
// connection may be broken.
func (t *tool) lost(s *session, err error) attempt {
	name := t.host.server.Name
	e, ok := errors.AsType[*callError](err)
	if !ok {
		return attempt{fate: failed, err: fmt.Errorf("the MCP server %q: %w", name, err)}
	}
	if auth, ok := errors.AsType[*AuthError](e.err); ok && !e.begun {
		return attempt{fate: failed, err: fmt.Errorf("the MCP server %q: %w. %s", name, auth, e.nothing())}
	}
	switch answer := answerOf(e.err); {
	case e.notTaken() && !e.sent:
		s.retire(errors.New("it could not be reached any more"))
		return attempt{fate: notSent, err: fmt.Errorf("the MCP server %q could not be reached: %w. %s", name,
			e, e.nothing())}
	case e.notTaken():
		fate := refused
		if e.status == http.StatusNotFound {
			fate = forgotten
		}
		return attempt{fate: fate, err: fmt.Errorf("the MCP server %q refused the call with HTTP status %d (%s)%s. %s",
			name, e.status, http.StatusText(e.status), t.host.server.said(e.err), e.nothing())}
	case answer != nil && answer.Code == codeTooLarge:
		return attempt{fate: failed, err: t.host.server.tooLargeError(answer.Message)}
	case answer != nil && !refusedStatus(e.status):
		return attempt{fate: failed, err: t.host.server.protocolError(answer, e.begun || e.resumed)}
	}
	why := errors.New(plainError(e.err).Error())
	if s.process != nil && s.process.intact() { // only this answer cannot be read
		return attempt{fate: inDoubt, err: why}
	}
	// The cause of the session's loss says more than the call's own error.
	s.retire(why)
	if s.process != nil {
		<-waitLost(s)
		why = context.Cause(s.ctx)
	}
	return attempt{fate: inDoubt, err: why}
}

// refusedStatus reports whether the HTTP status means that the server did not
// accept the call.
func refusedStatus(status int) bool {
	return status >= 400 && status < 500 || status == http.StatusServiceUnavailable
}

// codeRejected is the SDK's code for requests that it could not send, or whose
// answer it could not read.
const codeRejected = -32005

// answerOf returns the server's error response, or nil if it did not respond.
func answerOf(err error) *jsonrpc.Error {
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || answer.Code == codeRejected {
		return nil
	}
	return answer
}

func (s Server) said(err error) string {
	if answer := answerOf(err); answer != nil {
		return ": " + s.bounded(answer.Message, maxSaid)
	}
	return ""
}

const maxSaid = 2000 // bytes of a server's error that are shown

// protocolError returns the text for the model of a protocol error: the server
// did not run the tool, or failed while running it. A failure of the tool
// itself is a result instead.
func (s Server) protocolError(e *jsonrpc.Error, begun bool) error {
	text := fmt.Sprintf("the MCP server %q answered with an error of the protocol: %s (code %d)", s.Name,
		s.bounded(e.Message, maxSaid), e.Code)
	switch e.Code {
	case jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeParseError:
		if !begun {
			text += ". Nothing was run"
		}
	}
	return errors.New(strings.TrimSpace(text))
}
