package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper"
	"turnkeeper/tools"
)

// Sampling: during a call, a server asks for the answer of a model. The models
// are those of the agent whose call runs, and the agent's turn pays for it. The
// server gets only the answer, and nothing else of the turn.

// A sampler answers a server's sampling requests during one call, one at a
// time.
type sampler struct {
	turn    turnkeeper.TurnID
	ctx     context.Context // of the call
	sample  func(context.Context, tools.Sampling) (tools.Sampled, error)
	bounded bool // whether tokens are limited
	slot    chan struct{}

	mu     sync.Mutex
	calls  int   // requests left
	tokens int64 // tokens left
	noted  bool  // the first refusal
}

// newSampler returns nil if the server may not use sampling, or if the call
// cannot sample.
func newSampler(ctx context.Context, server Server, call tools.Call) *sampler {
	if !server.Sampling.Allow || call.Sample == nil {
		return nil
	}
	return &sampler{
		turn: call.TurnID, ctx: ctx, sample: call.Sample, slot: make(chan struct{}, 1),
		calls: server.Sampling.MaxCalls, tokens: int64(server.Sampling.MaxTokens),
		bounded: server.Sampling.MaxTokens > 0,
	}
}

// unanswered returns the error for a request that no model is asked.
func unanswered(code int64, format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// createMessage answers sampling/createMessage on behalf of a running call.
func (s *session) createMessage(ctx context.Context, req sdk.Request) (sdk.Result, error) {
	p, ok := req.GetParams().(*sdk.CreateMessageWithToolsParams) //nolint:staticcheck // older protocols use it
	if !ok {
		return nil, unanswered(jsonrpc.CodeInvalidParams, "this is no question")
	}
	asker, why := s.asker()
	if why != "" {
		why = "sampling is declined: " + why
		s.noteSampling("which was declined: " + why)
		return nil, unanswered(codeDeclined, "%s", why)
	}
	result, refused := s.sampleFor(ctx, asker, p)
	if refused != nil {
		return nil, refused
	}
	return result, nil
}

// asker returns the call that a request belongs to: the protocol does not say
// which. If all running calls belong to one turn, any of them will do, because
// the turn pays; one with budget left is preferred.
func (s *session) asker() (_ *sampler, why string) {
	if !s.server.Sampling.Allow {
		return nil, "the operator's policy does not allow it"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samplers) == 0 {
		return nil, "no call runs that it could be for"
	}
	first := s.samplers[0]
	for _, other := range s.samplers {
		if other.turn != first.turn {
			return nil,
				"calls of several turns run in this session, and it is not known which it is for (session: lane gives each lane its own)"
		}
		if first.spent() && !other.spent() {
			first = other
		}
	}
	return first, ""
}

// answering registers a call's sampler until stop is called.
func (s *session) answering(asker *sampler) (stop func()) {
	if asker == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samplers = append(s.samplers, asker)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.samplers = slices.DeleteFunc(s.samplers, func(one *sampler) bool { return one == asker })
	}
}

// sampleFor asks the models of a call, within its limits.
//
//nolint:staticcheck // older protocols use it
func (s *session) sampleFor(ctx context.Context, asker *sampler,
	p *sdk.CreateMessageWithToolsParams) (*sdk.CreateMessageResult, *jsonrpc.Error) {
	question, fault := questionOf(p)
	if fault != "" {
		s.noteSampling("which was declined: " + fault)
		return nil, unanswered(jsonrpc.CodeInvalidParams, "sampling is declined: %s", fault)
	}
	if why, first := asker.take(); why != "" {
		if first {
			s.noteSampling("which was declined: " + why)
		}
		return nil, unanswered(codeDeclined, "sampling is declined: %s", why)
	}
	s.noteSampling("which is allowed")
	answer, err := asker.ask(ctx, question)
	if err != nil {
		return nil, unanswered(jsonrpc.CodeInternalError, "no model has answered: %v", err)
	}
	text, reason := answer.Text, "endTurn"
	if answer.Cut {
		reason = "maxTokens"
	}
	if cut, found := cutAt(text, p.StopSequences); found {
		text, reason = cut, "stopSequence"
	}
	return &sdk.CreateMessageResult{ //nolint:staticcheck // older protocols use it
		Content: &sdk.TextContent{Text: text}, Model: answer.Model, Role: "assistant", StopReason: reason,
	}, nil
}

// spent reports whether a limit of the call is used up.
func (a *sampler) spent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls <= 0 || a.bounded && a.tokens <= 0
}

// take counts a request, or returns why it is refused. first is true for the
// first refusal.
func (a *sampler) take() (why string, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.calls <= 0:
		why = "the call has asked as often as it may (max_sampling_calls)"
	case a.bounded && a.tokens <= 0:
		why = "the call has used up the tokens that it may take (max_sampling_tokens)"
	default:
		a.calls--
		return "", false
	}
	first, a.noted = !a.noted, true
	return why, first
}

// ask asks the models. It ends when the call ends or when the server cancels
// its request.
func (a *sampler) ask(ctx context.Context, question tools.Sampling) (tools.Sampled, error) {
	ended := errors.New("the call has ended")
	select {
	case a.slot <- struct{}{}:
		defer func() { <-a.slot }()
	case <-ctx.Done():
		return tools.Sampled{}, ended
	case <-a.ctx.Done():
		return tools.Sampled{}, ended
	}
	own, stop := context.WithCancelCause(a.ctx)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	if a.bounded {
		a.mu.Lock()
		question.Tokens = a.tokens
		a.mu.Unlock()
		if question.Tokens <= 0 {
			return tools.Sampled{},
				errors.New("its earlier questions have used up the tokens that the call may take (max_sampling_tokens)")
		}
	}
	answer, err := a.sample(own, question)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens -= answer.Tokens
	return answer, err
}

// questionOf converts a sampling request, or returns why it cannot be asked. It
// ignores includeContext and the model preferences.
//
//nolint:staticcheck // older protocols use it
func questionOf(p *sdk.CreateMessageWithToolsParams) (question tools.Sampling, fault string) {
	if len(p.Tools) > 0 || p.ToolChoice != nil {
		return question, "tools in sampling are not supported"
	}
	question.System = p.SystemPrompt
	for _, m := range p.Messages {
		if m == nil || m.Role != "user" && m.Role != "assistant" {
			return question, "a message must have the role user or assistant"
		}
		var texts []string
		for _, content := range m.Content {
			text, isText := content.(*sdk.TextContent)
			if !isText {
				return question, "only text can be asked"
			}
			texts = append(texts, text.Text)
		}
		if len(texts) == 0 {
			return question, "a message is empty"
		}
		question.Messages = append(question.Messages, tools.SamplingMessage{FromModel: m.Role == "assistant",
			Text: strings.Join(texts, "\n\n")})
	}
	if len(question.Messages) == 0 {
		return question, "there is no message in it"
	}
	question.MaxTokens = int(min(max(p.MaxTokens, 0), maxAnswerTokens))
	if p.Temperature > 0 {
		question.Temperature = &p.Temperature
	}
	return question, ""
}

// maxAnswerTokens is larger than any answer.
const maxAnswerTokens = 1 << 30

// cutAt cuts a text at the first stop sequence.
func cutAt(text string, sequences []string) (cut string, found bool) {
	for _, sequence := range sequences {
		if at := strings.Index(text, sequence); sequence != "" && at >= 0 {
			text, found = text[:at], true
		}
	}
	return text, found
}

func (s *session) noteSampling(what string) { s.note("asked for an answer of a model, " + what) }
