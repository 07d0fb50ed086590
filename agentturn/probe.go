package agentturn

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
)

// The request of a worker's own, by which it finds out whether a model answers at all.
const (
	probePrompt = "Reply with ok."
	probeTokens = 8                // maximum length of the answer
	probeTime   = 30 * time.Second // the least time for it
)

// probe makes a request of the worker's own before the turn's first one to a model, if what the model fails at may be
// the turn's message, or its conversation. It returns a fault of the service: the turn's request is then not sent. If
// the model answers, this is written at once, for all workers, and the turn goes on. A model that refuses the request
// is available, but that proves nothing about the message.
func (a *attempt) probe(ctx context.Context) error {
	health, next := &a.asker.models.health, &a.asker.pending
	if !health.inDoubt(a.model.ref) || health.refusedProbe[a.model.ref] {
		return nil
	}
	down := health.probed(a.model.ref)
	if _, asked := health.asked[a.model.ref]; !asked {
		health.asked[a.model.ref] = 0 // the model is asked, but not by the turn's request
	}
	a.writeBefore()
	err := a.askProbe(ctx)
	failure, failed := errors.AsType[*inference.Error](err)
	switch {
	case err != nil && !failed, failed && ctx.Err() != nil:
		return err
	case failed && failure.Class.OfService():
		failure.NoRetry = failure.NoRetry || down // as with each probe of a model that is down
		return failure
	case failed && failure.Class != inference.ClassBadOutput: // an answer that cannot be used is one
		health.refusedProbe[a.model.ref] = true
		next.refused(a.model.ref)
	default:
		next.up(&next.Probed, a.model.ref)
	}
	health.isUp(a.model.ref)
	a.asker.log.Info("the model answers a request of the worker's own; asking it for the turn",
		zap.String("model", a.model.ref))
	a.tell()
	a.asker.at(ctx, PointProbed)
	if a.unwritable != nil {
		return a.unwritable
	}
	return nil
}

// probeWithin returns how long the answer to a probe may take: longer than a model may be silent before a turn's
// request fails. A model that is slow to begin would else never be found to be up.
func probeWithin(idle time.Duration) time.Duration { return max(probeTime, idle+probeTime/3) }

// askProbe asks the model once. The usage is added to the round's.
func (a *attempt) askProbe(ctx context.Context) error {
	call := &sideCall{
		task: a.asker.task, spending: a.asker.spending, purpose: PurposeProbe, log: a.asker.log,
		models: []*candidate{a.model}, logged: true, within: probeWithin(a.asker.bounds.ModelIdle),
		request: func(m *candidate) (inference.Request, turnkeeper.Usage, error) {
			request := inference.Request{
				Model: m.Name, Messages: []inference.Message{{Role: inference.RoleUser, Text: probePrompt}},
				MaxOutputTokens: probeTokens,
			}
			return request, turnkeeper.Usage{InputTokens: int64(m.Tokens.Counter.CountText(probePrompt)),
				OutputTokens: probeTokens, Estimated: true}, nil
		},
		account: func(used turnkeeper.Usage) { a.asker.sideUsage = a.asker.sideUsage.Add(used) },
		accept:  func(*candidate, *inference.Response) error { return nil },
	}
	call.retry.MaxAttempts, call.retry.MaxBadOutput = 1, -1
	_, err := call.ask(ctx)
	if call.blocked != nil {
		a.stop(call.blocked)
	}
	return err
}
