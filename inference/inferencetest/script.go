package inferencetest

import (
	"context"
	"slices"
	"sync"
	"unicode/utf8"

	"turnkeeper/inference"
)

// A Step is one model call of a Script.
type Step func(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, error)

// Answer returns a step that streams the response as deltas (reasoning, text, calls) and
// returns it.
func Answer(res inference.Response) Step {
	return func(_ context.Context, _ inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
		emit(res, onDelta)
		return res, nil
	}
}

// Fail returns a step that returns the error, without a delta.
func Fail(err error) Step {
	return func(context.Context, inference.Request, func(inference.Delta)) (inference.Response, error) {
		return inference.Response{}, err
	}
}

// FailAfter returns a step that streams the response and then fails, like a cut stream.
func FailAfter(res inference.Response, err error) Step {
	return func(_ context.Context, _ inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
		emit(res, onDelta)
		return inference.Response{}, err
	}
}

// Block returns a step that waits until ctx ends and returns its cause.
func Block() Step {
	return func(ctx context.Context, _ inference.Request, _ func(inference.Delta)) (inference.Response, error) {
		<-ctx.Done()
		return inference.Response{}, context.Cause(ctx)
	}
}

// Func returns f as a step. f may be called concurrently; onDelta is never nil.
func Func(f func(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error)) Step {
	return f
}

// A Script is a Provider that plays steps. Each call takes the next step. After the last one,
// calls take the step of Then, or fail with ClassInvalid. It is safe for concurrent use.
type Script struct {
	mu       sync.Mutex
	steps    []Step
	rest     Step
	requests []inference.Request
}

var _ inference.Provider = (*Script)(nil)

// NewScript returns a Script of steps.
func NewScript(steps ...Step) *Script { return &Script{steps: steps} }

// Add queues more steps.
func (s *Script) Add(steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, steps...)
}

// Then sets the step of every call after the queued ones, and returns s.
func (s *Script) Then(step Step) *Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = step
	return s
}

// Requests returns the requests so far, in the order of their arrival.
func (s *Script) Requests() []inference.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Left returns the number of queued steps that no call has taken.
func (s *Script) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steps)
}

// Generate records the request and plays the next step. A call whose ctx has
// ended is recorded, takes no step, and returns the cause.
func (s *Script) Generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if onDelta == nil {
		onDelta = func(inference.Delta) {}
	}
	step := s.next(ctx, req)
	if ctx.Err() != nil {
		return inference.Response{}, context.Cause(ctx)
	}
	if step == nil {
		return inference.Response{}, &inference.Error{
			Class: inference.ClassInvalid, Provider: "script", Model: req.Model,
			Detail: "the script has no more steps",
		}
	}
	return step(ctx, req, onDelta)
}

func (s *Script) next(ctx context.Context, req inference.Request) Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, cloneRequest(req))
	if ctx.Err() != nil {
		return nil
	}
	if len(s.steps) == 0 {
		return s.rest
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	return step
}

// cloneRequest copies the slices of a request, which its sender may change later.
func cloneRequest(req inference.Request) inference.Request {
	req.Messages = slices.Clone(req.Messages)
	for i := range req.Messages {
		req.Messages[i].Calls = slices.Clone(req.Messages[i].Calls)
	}
	req.Tools = slices.Clone(req.Tools)
	return req
}

func emit(res inference.Response, onDelta func(inference.Delta)) {
	for _, piece := range halves(res.Reasoning) {
		onDelta(inference.Delta{Kind: inference.DeltaThinking, Text: piece})
	}
	for _, piece := range halves(res.Text) {
		onDelta(inference.Delta{Kind: inference.DeltaText, Text: piece})
	}
	for i, call := range res.Calls {
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Name: call.Name})
		for _, piece := range halves(call.Arguments) {
			onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Text: piece})
		}
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Done: true})
	}
}

// halves splits a text between characters into at most two pieces, none of them empty.
func halves(text string) []string {
	if text == "" {
		return nil
	}
	cut := len(text) / 2
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	if cut == 0 {
		return []string{text}
	}
	return []string{text[:cut], text[cut:]}
}
