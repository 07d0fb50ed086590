package telemetry

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/traceparent"
)

var _ agentturn.Observer = (*Telemetry)(nil)

// Words of the grant log, and of the metric of dispatches.
const (
	outcomeFinished   = "finished"
	outcomeWaiting    = "waiting"
	outcomeDeferred   = "deferred"
	outcomeHandedBack = "handed_back"
	outcomeLost       = "lost"
	outcomeFenced     = "fenced"
	outcomeUnwritten  = "unwritten"
)

// A dispatch traces one grant of a turn.
type dispatch struct {
	tele  *Telemetry
	turn  turnkeeper.Turn
	made  time.Time // creation time of the turn, by the clock of this process
	whole trace.Span
	span  trace.Span
}

type dispatchKey struct{}

// Dispatch starts the span of a grant. Its parent is the span of the turn, whose id
// every process can derive, and which the process that ends the turn sends: a span
// cannot stay open across processes.
func (t *Telemetry) Dispatch(ctx context.Context, b agentturn.DispatchBegin) (context.Context,
	func(agentturn.DispatchEnd)) {
	turn := b.Record.Turn
	place := traceparent.Of(turn, b.Record.Message.TraceParent)
	granted := time.Now().Add(-b.Record.Elapsed)
	d := &dispatch{tele: t, turn: turn, made: granted.Add(-max(0, turn.GrantedAt.Sub(turn.CreatedAt)))}
	d.whole = t.turnSpan(ctx, place, turn, d.made)
	within := trace.ContextWithSpan(ctx, d.whole)
	if b.Before.Outcome == outcomeLost {
		t.lostSpan(within, place, b.Before, turn.Dispatches-1, granted.Add(-turn.GrantedAt.Sub(b.Before.GrantedAt)))
	}
	options := []trace.SpanStartOption{
		trace.WithTimestamp(granted),
		trace.WithAttributes(attribute.Int("turnkeeper.dispatch", turn.Dispatches)),
	}
	if b.Before.GrantID != "" {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: d.whole.SpanContext().WithSpanID(
			place.SpanOf(traceparent.GrantSpan(b.Before.GrantID)))}))
	}
	_, d.span = t.tracer.Start(wanting(within, place.TraceID, place.SpanOf(traceparent.GrantSpan(turn.GrantID))),
		"dispatch", options...)
	t.metrics.granted(ctx, b.Record)
	ctx = trace.ContextWithSpan(context.WithValue(ctx, dispatchKey{}, d), d.span)
	return ctx, d.end
}

// turnSpan returns the span of a whole turn. Only the process that ends the turn ends it.
func (t *Telemetry) turnSpan(ctx context.Context, place traceparent.Context, turn turnkeeper.Turn,
	made time.Time) trace.Span {
	options := []trace.SpanStartOption{trace.WithTimestamp(made), trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "invoke_agent"),
		attribute.String("gen_ai.agent.name", turn.Agent),
		attribute.String("gen_ai.conversation.id", string(turn.ConversationKey().Lane())),
		attribute.Int64("turnkeeper.turn.id", int64(turn.ID)),
		attribute.Int64("turnkeeper.message.id", int64(turn.MessageID)),
		attribute.Int("turnkeeper.attempt", turn.Attempt),
		attribute.String("turnkeeper.trigger", string(turn.Trigger)),
	)}
	if place.HasSender() {
		var flags trace.TraceFlags
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: place.TraceID, SpanID: place.Sender, TraceFlags: flags.WithSampled(place.Sampled), Remote: true,
		}))
	} else {
		options = append(options, trace.WithNewRoot())
	}
	_, span := t.tracer.Start(wanting(ctx, place.TraceID, place.SpanOf(traceparent.TurnSpan(turn.ID))),
		"invoke_agent "+turn.Agent, options...)
	return span
}

// lostSpan sends the span of a grant for its lost worker.
func (t *Telemetry) lostSpan(ctx context.Context, place traceparent.Context, lost turnkeeper.Dispatch, number int,
	granted time.Time) {
	_, span := t.tracer.Start(wanting(ctx, place.TraceID, place.SpanOf(traceparent.GrantSpan(lost.GrantID))),
		"dispatch",
		trace.WithTimestamp(granted), trace.WithAttributes(
			attribute.Int("turnkeeper.dispatch", number),
			attribute.String("turnkeeper.dispatch.outcome", outcomeLost),
			attribute.String("turnkeeper.dispatch.worker", string(lost.WorkerID)),
			attribute.String("error.type", string(turnkeeper.StopWorkerLost)),
		))
	span.SetStatus(codes.Error, "the worker was lost")
	span.End(trace.WithTimestamp(granted.Add(max(0, lost.EndedAt.Sub(lost.GrantedAt)))))
}

// end ends a dispatch. If no outcome could be written, it does not send the span: the
// grant is then lost, and the worker with the next grant sends it.
func (d *dispatch) end(e agentturn.DispatchEnd) {
	outcome := outcomeOf(e)
	d.tele.metrics.dispatched(d.turn, outcome)
	if e.Err != nil {
		return
	}
	d.span.SetAttributes(attribute.String("turnkeeper.dispatch.outcome", outcome))
	d.span.End()
	if !e.Outcome.State.Terminal() {
		return
	}
	d.tele.metrics.ended(d.turn, e, time.Since(d.made))
	var used turnkeeper.Usage
	for _, round := range e.Rounds {
		used = used.Add(round.Usage)
	}
	d.whole.SetAttributes(
		attribute.String("turnkeeper.state", string(e.Outcome.State)),
		attribute.String("turnkeeper.stop_reason", string(e.Outcome.StopReason)),
		attribute.Int("turnkeeper.rounds", len(e.Rounds)),
		attribute.Int64("gen_ai.usage.input_tokens", used.InputTokens),
		attribute.Int64("gen_ai.usage.output_tokens", used.OutputTokens),
	)
	d.whole.SetAttributes(counts(map[string]int64{
		"gen_ai.usage.cache_read.input_tokens":  used.CachedTokens,
		"gen_ai.usage.cache_write.input_tokens": used.CacheWriteTokens,
	})...)
	if e.Outcome.State == turnkeeper.TurnFailed {
		d.whole.SetAttributes(attribute.String("error.type", orOther(e.Outcome.ErrorClass)))
		d.whole.SetStatus(codes.Error, "")
	}
	d.whole.End()
}

func outcomeOf(e agentturn.DispatchEnd) string {
	switch {
	case errors.Is(e.Err, turnkeeper.ErrFenced):
		return outcomeFenced
	case e.Err != nil:
		return outcomeUnwritten
	case e.Outcome.State.Terminal():
		return outcomeFinished
	case e.Outcome.State == turnkeeper.TurnWaiting:
		return outcomeWaiting
	case e.Outcome.Backoff > 0:
		return outcomeDeferred
	default:
		return outcomeHandedBack
	}
}

// ofDispatch returns ctx with the dispatch's span as parent.
func ofDispatch(ctx context.Context) context.Context {
	if d, ok := ctx.Value(dispatchKey{}).(*dispatch); ok {
		return trace.ContextWithSpan(ctx, d.span)
	}
	return ctx
}

// Round starts the span of a round, or of the part of it in a later dispatch.
func (t *Telemetry) Round(ctx context.Context, r agentturn.RoundBegin) (context.Context, func(agentturn.RoundEnd)) {
	if !t.Traces() {
		return ctx, func(agentturn.RoundEnd) {}
	}
	ctx, span := t.tracer.Start(ofDispatch(ctx), "round", trace.WithAttributes(
		attribute.Int("turnkeeper.round", r.Number), attribute.Bool("turnkeeper.round.resumed", r.Resumed),
	))
	return ctx, func(e agentturn.RoundEnd) {
		if e.Round != nil {
			span.SetAttributes(
				attribute.Int("turnkeeper.round.calls", len(e.Round.Calls)), attribute.Bool("turnkeeper.round.charged",
					e.Round.Charged),
				attribute.Int("turnkeeper.round.attempts", e.Round.Attempts),
			)
		}
		span.End()
	}
}

// ModelCall starts the span of one attempt at a model call.
func (t *Telemetry) ModelCall(ctx context.Context, m agentturn.ModelBegin) (context.Context, func(agentturn.ModelEnd)) {
	started := time.Now()
	if !t.Traces() {
		return ctx, func(e agentturn.ModelEnd) { t.metrics.modelCalled(m, e, time.Since(started)) }
	}
	attributes := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("gen_ai.provider.name", providerName(m.Provider)),
		attribute.String("gen_ai.request.model", m.Model),
		attribute.String("turnkeeper.purpose", string(m.Purpose)),
	}
	if m.Attempt > 0 {
		attributes = append(attributes, attribute.Int("turnkeeper.attempt", m.Attempt))
	}
	if n := m.Request.MaxOutputTokens; n > 0 {
		attributes = append(attributes, attribute.Int("gen_ai.request.max_tokens", n))
	}
	if temperature := m.Request.Temperature; temperature != nil {
		attributes = append(attributes, attribute.Float64("gen_ai.request.temperature", *temperature))
	}
	ctx, span := t.tracer.Start(ctx, "chat "+m.Model, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attributes...))
	if t.content && span.IsRecording() {
		span.SetAttributes(t.asked(m.Request)...)
	}
	return ctx, func(e agentturn.ModelEnd) {
		t.metrics.modelCalled(m, e, time.Since(started))
		if e.Err != nil {
			fail(span, modelError(e.Err))
		} else {
			span.SetAttributes(answered(e.Response)...)
			if t.content && span.IsRecording() {
				span.SetAttributes(t.said(e.Response)...)
			}
		}
		span.End()
	}
}

func answered(r inference.Response) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String("gen_ai.response.model", r.Model)}
	if r.ID != "" {
		attributes = append(attributes, attribute.String("gen_ai.response.id", r.ID))
	}
	if r.FinishReason != "" {
		attributes = append(attributes, attribute.StringSlice("gen_ai.response.finish_reasons",
			[]string{r.FinishReason}))
	}
	if r.Usage.Estimated { // the conventions exclude estimates
		return attributes
	}
	return append(attributes, counts(map[string]int64{
		"gen_ai.usage.input_tokens": r.Usage.InputTokens, "gen_ai.usage.output_tokens": r.Usage.OutputTokens,
		"gen_ai.usage.cache_read.input_tokens":  r.Usage.CachedTokens,
		"gen_ai.usage.cache_write.input_tokens": r.Usage.CacheWriteTokens,
		"gen_ai.usage.reasoning.output_tokens":  r.Usage.ReasoningTokens,
	})...)
}

// counts returns the counts that are not 0.
func counts(named map[string]int64) (attributes []attribute.KeyValue) {
	for name, n := range named {
		if n > 0 {
			attributes = append(attributes, attribute.Int64(name, n))
		}
	}
	return attributes
}

// modelError returns the class of an error, one of a closed list. It omits the text,
// in which a provider may echo the request.
func modelError(err error) string {
	if e, ok := errors.AsType[*inference.Error](err); ok {
		return orOther(string(e.Class))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "cancelled"
}

// ToolCall starts the span of a run of a tool.
func (t *Telemetry) ToolCall(ctx context.Context, b agentturn.ToolBegin) (context.Context, func(agentturn.ToolEnd)) {
	if b.Detached {
		ctx = t.ofTurn(ctx, b)
	}
	call, started := b.Call, time.Now()
	if !t.Traces() {
		return ctx, func(e agentturn.ToolEnd) {
			if !e.Unused {
				t.metrics.toolRan(call.Name, e.State, cmp.Or(e.Duration, time.Since(started)))
			}
		}
	}
	ctx, span := t.tracer.Start(ctx, "execute_tool "+call.Name, trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", call.Name),
		attribute.String("gen_ai.tool.type", "function"),
		attribute.String("gen_ai.tool.call.id", call.WireID),
		attribute.String("turnkeeper.call", call.Key.String()),
		attribute.String("turnkeeper.effect", string(call.Effect)),
		attribute.Bool("turnkeeper.detached", b.Detached),
	))
	if t.content {
		span.SetAttributes(attribute.String("gen_ai.tool.call.arguments", t.shown(call.AsRun())))
	}
	return ctx, func(e agentturn.ToolEnd) {
		if e.Unused { // a span that does not end is not sent
			return
		}
		took := cmp.Or(e.Duration, time.Since(started))
		t.metrics.toolRan(call.Name, e.State, took)
		if e.WireID != "" {
			span.SetAttributes(attribute.String("gen_ai.tool.call.id", e.WireID))
		}
		span.SetAttributes(attribute.String("turnkeeper.state", string(e.State)))
		if e.Error != "" {
			fail(span, e.Error)
		}
		if t.content {
			span.SetAttributes(attribute.String("gen_ai.tool.call.result", t.shown(e.Result)))
		}
		span.End(trace.WithTimestamp(started.Add(took)))
	}
}

// SubAgent sends the span of a call to another agent. Its parent is the turn, because
// several dispatches may have waited for it. It is the parent of the other agent's turn.
func (t *Telemetry) SubAgent(ctx context.Context, s agentturn.SubAgentEnd) {
	t.metrics.toolRan(s.Call.Name, s.State, s.Duration)
	place := traceparent.Of(s.Turn, s.TraceParent)
	ctx = trace.ContextWithSpan(ctx, t.turnSpan(ctx, place, s.Turn, s.Turn.CreatedAt))
	attributes := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", s.Call.Name),
		attribute.String("gen_ai.tool.type", "function"),
		attribute.String("gen_ai.tool.call.id", s.Call.WireID),
		attribute.String("turnkeeper.call", s.Call.Key.String()),
		attribute.String("turnkeeper.effect", string(s.Call.Effect)),
		attribute.String("turnkeeper.state", string(s.State)),
	}
	if s.Agent != "" {
		attributes = append(attributes, attribute.String("turnkeeper.sub_agent", s.Agent))
	}
	if s.Child != 0 {
		attributes = append(attributes, attribute.Int64("turnkeeper.sub_agent.turn.id", int64(s.Child)))
	}
	ended := time.Now()
	began := ended.Add(-s.Duration)
	if !s.Began.IsZero() && s.Began.Before(ended) {
		began = s.Began
		ended = began.Add(s.Duration)
	}
	id := place.SpanOf(traceparent.CallSpan(s.Turn.ID, s.Call.Key))
	_, span := t.tracer.Start(wanting(ctx, place.TraceID, id), "execute_tool "+s.Call.Name, trace.WithTimestamp(began),
		trace.WithAttributes(attributes...))
	if t.content {
		span.SetAttributes(attribute.String("gen_ai.tool.call.arguments", t.shown(s.Call.AsRun())))
	}
	if s.Error != "" {
		fail(span, s.Error)
	}
	span.End(trace.WithTimestamp(ended))
}

// Traced reports whether the span of ctx is sampled.
func (t *Telemetry) Traced(ctx context.Context) bool {
	return trace.SpanContextFromContext(ctx).IsSampled()
}

// ofTurn returns ctx with the turn's span as parent, for work outside of its
// dispatches.
func (t *Telemetry) ofTurn(ctx context.Context, b agentturn.ToolBegin) context.Context {
	place := traceparent.Of(b.Turn, b.TraceParent)
	return trace.ContextWithSpan(ctx, t.turnSpan(ctx, place, b.Turn, b.Turn.CreatedAt))
}

func fail(span trace.Span, class string) {
	span.SetAttributes(attribute.String("error.type", class))
	span.SetStatus(codes.Error, "")
}

func orOther(class string) string {
	if class == "" {
		return "_OTHER"
	}
	return class
}

// The conventions' names of providers, if they differ from ours.
var providerNames = map[string]string{
	"mistral": "mistral_ai", "gemini": "gcp.gemini", "google": "gcp.gemini", "xai": "x_ai", "azure": "azure.ai.openai",
	"bedrock": "aws.bedrock",
}

func providerName(configured string) string {
	if name, ok := providerNames[configured]; ok {
		return name
	}
	return configured
}
