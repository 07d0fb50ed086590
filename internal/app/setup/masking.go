package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"turnkeeper/inference"
	"turnkeeper/internal/redact"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// Secrets are masked where text comes in, before a turn sees it, so that the displayed, stored, hashed
// and forwarded text are the same.

// A maskedProvider masks the answers of a model, including deltas.
type maskedProvider struct {
	inference.Provider
	masker *redact.Masker
}

// Form returns how the provider encodes requests.
func (p maskedProvider) Form() string { return inference.FormOf(p.Provider) }

func (p maskedProvider) Generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	deltas := &maskedDeltas{masker: p.masker, to: onDelta}
	var pass func(inference.Delta)
	if onDelta != nil {
		pass = deltas.take
	}
	response, err := p.Provider.Generate(ctx, req, pass)
	deltas.flush()
	response.Text = p.masker.String(response.Text)
	response.Reasoning = p.masker.String(response.Reasoning)
	response.Refusal = p.masker.String(response.Refusal)
	response.FinishReason = p.masker.String(response.FinishReason)
	response.Model, response.ID = p.masker.String(response.Model), p.masker.String(response.ID)
	for i, call := range response.Calls {
		call.ID, call.Name, call.Arguments = p.masker.String(call.ID), p.masker.String(call.Name),
			p.masker.String(call.Arguments)
		response.Calls[i] = call
	}
	response.Raw = p.masker.Bytes(response.Raw)
	return response, err
}

// maskedDeltas masks a stream of deltas. Consecutive deltas of one block go through one redact.Stream,
// which holds back text that may be the start of a secret.
type maskedDeltas struct {
	masker *redact.Masker
	to     func(inference.Delta)
	stream *redact.Stream
	block  inference.Delta // kind and index of the block
}

func (m *maskedDeltas) take(d inference.Delta) {
	if d.Done {
		if d.Kind == m.block.Kind && d.Index == m.block.Index {
			m.flush()
		}
		m.to(d)
		return
	}
	if m.stream == nil || d.Kind != m.block.Kind || d.Index != m.block.Index {
		m.flush()
		m.stream, m.block = m.masker.Stream(), inference.Delta{Kind: d.Kind, Index: d.Index}
	}
	d.Text, d.Name = m.stream.Write(d.Text), m.masker.String(d.Name)
	if d.Text != "" || d.Name != "" {
		m.to(d)
	}
}

func (m *maskedDeltas) flush() {
	if m.stream == nil {
		return
	}
	if rest := m.stream.Flush(); rest != "" {
		last := m.block
		last.Text = rest
		m.to(last)
	}
	m.stream = nil
}

// maskTools masks the results of tools. A masked tool decides about its calls, and looks them up, if the tool does: a
// turn writes more often before it runs tools that decide.
func maskTools(all []tools.Tool, masker *redact.Masker) []tools.Tool {
	masked := make([]tools.Tool, len(all))
	for i, tool := range all {
		plain := maskedTool{tool, masker}
		approver, decides := tool.(tools.Approver)
		reconciler, looks := tool.(tools.Reconciler)
		decision, lookup := maskedApprover{approver, masker}, maskedReconciler{plain, reconciler}
		switch {
		case decides && looks:
			masked[i] = struct {
				maskedReconciler
				maskedApprover
			}{lookup, decision}
		case decides:
			masked[i] = struct {
				maskedTool
				maskedApprover
			}{plain, decision}
		case looks:
			masked[i] = lookup
		default:
			masked[i] = plain
		}
	}
	return masked
}

type maskedTool struct {
	tools.Tool
	masker *redact.Masker
}

func (t maskedTool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	if tell := call.Progress; tell != nil {
		call.Progress = func(text string) { tell(t.masker.String(text)) }
	}
	if call.Sample != nil {
		call.Sample = t.maskSample(call.Sample)
	}
	call.Mask = t.masker.Part
	defer t.maskPanic()
	result, err := t.Tool.Run(ctx, call)
	if err == nil && result.Body == nil { // limits the size before masking
		result, err = tools.Collect(ctx, result)
	}
	if request, ok := errors.AsType[*tools.InputRequest](err); ok {
		return tools.Result{}, t.maskInput(request)
	}
	return t.mask(result), t.masker.Error(err)
}

// maskPanic masks the message of a panic, which is cut before it is shown.
func (t maskedTool) maskPanic() {
	if cause := recover(); cause != nil {
		panic(t.masker.String(fmt.Sprint(cause)))
	}
}

// maskInput masks what a person sees of a request for input. The tool gets its state back as it was.
func (t maskedTool) maskInput(r *tools.InputRequest) *tools.InputRequest {
	return &tools.InputRequest{Question: t.masker.String(r.Question), Schema: t.masker.Bytes(r.Schema), State: r.State}
}

// A maskedApprover masks the decisions of a tool.
type maskedApprover struct {
	approver tools.Approver
	secrets  *redact.Masker
}

func (a maskedApprover) Approve(ctx context.Context, call tools.Call) (policy.Decision, error) {
	d, err := a.approver.Approve(ctx, call)
	d.Reason, d.Rule = a.secrets.String(d.Reason), a.secrets.String(d.Rule)
	return d, a.secrets.Error(err)
}

// maskSample masks the requests of a tool to a model.
func (t maskedTool) maskSample(sample func(context.Context, tools.Sampling) (tools.Sampled, error)) func(
	context.Context, tools.Sampling) (tools.Sampled, error) {
	return func(ctx context.Context, s tools.Sampling) (tools.Sampled, error) {
		s.System, s.Messages = t.masker.String(s.System), slices.Clone(s.Messages)
		for i := range s.Messages {
			s.Messages[i].Text = t.masker.String(s.Messages[i].Text)
		}
		return sample(ctx, s)
	}
}

func (t maskedTool) mask(r tools.Result) tools.Result {
	if r.Incomplete {
		r.Text = t.masker.Cut(r.Text)
	}
	r.Text = t.masker.String(r.Text)
	for i := range r.Attached {
		r.Attached[i].Name = t.masker.String(r.Attached[i].Name)
	}
	if r.Body != nil && tools.IsText(r.MediaType) {
		r.Body = t.masker.Reader(r.Body)
	}
	return r
}

type maskedReconciler struct {
	maskedTool
	reconciler tools.Reconciler
}

func (t maskedReconciler) Reconcile(ctx context.Context, call tools.Call) (tools.Result, bool, error) {
	result, happened, err := t.reconciler.Reconcile(ctx, call)
	if err == nil {
		result, err = tools.Collect(ctx, result)
	}
	return t.mask(result), happened, t.masker.Error(err)
}
