package agentturn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
)

// modelHealth is what a turn knows of the health of models. It belongs to the
// goroutine of the turn.
type modelHealth struct {
	grant turnkeeper.GrantID
	known map[string]turnkeeper.ModelHealth // that were down, by name
	asked map[string]bool                   // a request was sent to, in the call under way
}

func newModelHealth(record turnkeeper.Record) modelHealth {
	h := modelHealth{grant: record.Turn.GrantID, known: map[string]turnkeeper.ModelHealth{}, asked: map[string]bool{}}
	for _, m := range record.Down {
		h.known[m.Model] = m
	}
	return h
}

// down says that a model is not to be asked: it is down, and it is not this turn
// that tries it.
func (h *modelHealth) down(name string) bool {
	m, known := h.known[name]
	return known && (m.Probe == "" || m.Probe != h.grant)
}

// probed says that this turn tries whether a model that is down is up again.
func (h *modelHealth) probed(name string) bool {
	m, known := h.known[name]
	return known && m.Probe != "" && m.Probe == h.grant
}

// failed notes a fault of the service and returns it as it is written.
func (h *modelHealth) failed(name string, err *inference.Error) turnkeeper.ModelFailure {
	m := h.known[name]
	f := turnkeeper.ModelFailure{
		Model: name, Seen: m.Failures, ErrorClass: string(err.Class), Error: firstChars(err.Error(), maxHealthError), RetryAfter: err.RetryAfter,
	}
	m.Model, m.ErrorClass, m.Error, m.Probe = name, f.ErrorClass, f.Error, ""
	h.known[name] = m
	return f
}

// maxHealthError bounds what is kept of a model's newest failure, in characters.
const maxHealthError = 1000

// usable are the models of the chain to ask: those that are not down. Once an effect has
// happened all are, where no other is left.
func (t *turn) usable(all []*candidate) []*candidate {
	up := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return t.health.down(c.name) })
	if len(up) == 0 && t.anyEffect() {
		return all
	}
	return up
}

// answeredBy notes that a model has answered, be it with a refusal.
func (t *turn) answeredBy(name string) {
	delete(t.health.known, name)
	t.next.ModelFailures = slices.DeleteFunc(t.next.ModelFailures, func(f turnkeeper.ModelFailure) bool { return f.Model == name })
	if !slices.Contains(t.next.Answered, name) {
		t.next.Answered = append(t.next.Answered, name)
		slices.Sort(t.next.Answered)
	}
}

// gaveUp notes why a model was given up. A fault of the service is told with the next
// write; a model that refuses a request is there.
func (t *turn) gaveUp(name string, err *inference.Error) {
	asked := t.health.asked[name]
	switch {
	case !asked: // nothing was sent
	case err.Class.OfService():
		f := t.health.failed(name, err)
		t.next.Answered = slices.DeleteFunc(t.next.Answered, func(n string) bool { return n == name })
		t.next.ModelFailures = slices.DeleteFunc(t.next.ModelFailures, func(f turnkeeper.ModelFailure) bool { return f.Model == name })
		t.next.ModelFailures = append(t.next.ModelFailures, f)
		slices.SortFunc(t.next.ModelFailures, func(a, b turnkeeper.ModelFailure) int { return cmp.Compare(a.Model, b.Model) })
		t.log.Warn("a model cannot be used", zap.String("model", name), zap.String("class", f.ErrorClass), zap.Duration("pause", f.Pause()))
	default:
		t.answeredBy(name)
	}
}

// A serviceError is a call that failed by a fault of the service: the same request
// may be answered later.
type serviceError struct {
	err      error
	class    string
	waitsFor []string      // models of the chain that may answer it
	pause    time.Duration // until one of them may be asked
	after    time.Duration // that a provider asked for
}

func (e *serviceError) Error() string { return e.err.Error() }
func (e *serviceError) Unwrap() error { return e.err }

// faultOf is err, or, where any model of the chain may answer the request later,
// a *serviceError with it. given are the failures of the models that were asked. A model that
// gave an answer which cannot be used counts, whatever the others did: it costs.
func (t *turn) faultOf(all []*candidate, given map[string]*inference.Error, err error) error {
	for _, c := range all {
		if failure := given[c.name]; failure != nil && failure.Class == inference.ClassBadOutput {
			return failure
		}
	}
	fault := &serviceError{err: err}
	for _, c := range all {
		failure := given[c.name]
		switch {
		case failure != nil && failure.Class.OfService():
			fault.class = cmp.Or(fault.class, string(failure.Class))
			pause := max(turnkeeper.Backoff(t.health.known[c.name].Failures+1), failure.RetryAfter)
			if fault.pause == 0 || pause < fault.pause {
				fault.pause, fault.after = pause, failure.RetryAfter
			}
		case failure == nil && t.health.down(c.name):
			fault.class = cmp.Or(fault.class, t.health.known[c.name].ErrorClass)
		default:
			continue
		}
		fault.waitsFor = append(fault.waitsFor, c.name)
	}
	if len(fault.waitsFor) == 0 {
		return err
	}
	if fault.pause == 0 {
		// Also where all are known to be down. The grant waits for them as well, but by the models
		// that the newest worker has registered, which need not be those of this definition.
		fault.pause = turnkeeper.Backoff(t.record.Failures + 1)
	}
	return fault
}

// unconfigured is the error of a turn whose models this worker does not know: one that
// does may come, and the settings may be put right. It says nothing of the models.
func (t *turn) unconfigured(names []string, err *inference.Error) error {
	return &serviceError{err: err, class: string(err.Class), waitsFor: names, pause: turnkeeper.Backoff(t.record.Failures + 1)}
}

// allDown is the error of a call that is not made, because every model is down and
// another turn tries them.
func (t *turn) allDown(all []*candidate) error {
	var details []string
	for _, c := range all {
		m := t.health.known[c.name]
		details = append(details, m.Error)
	}
	first := t.health.known[all[0].name]
	return &inference.Error{
		Class: inference.Class(first.ErrorClass), Provider: all[0].info.Provider, Model: all[0].info.Model,
		Detail: "not asked, for it is down: " + strings.Join(details, "; "),
	}
}

// The pauses between tries of the whole chain, once an effect has happened.
const (
	firstLongPause = time.Second
	maxLongPause   = 8 * time.Second
)

// longPause is how long to wait before the whole chain is asked again, after so many
// times. ok is false where the turn ends instead: no effect has happened, so that the
// message can wait, or there is no time left.
func (t *turn) longPause(ctx context.Context, err error, times int) (wait time.Duration, ok bool) {
	fault, service := errors.AsType[*serviceError](err)
	if !service || ctx.Err() != nil || !t.anyEffect() {
		return 0, false
	}
	wait = max(min(firstLongPause<<min(times-1, 10), maxLongPause), fault.after)
	deadline, bounded := ctx.Deadline()
	return wait, !bounded || wait < time.Until(deadline)
}

// anyEffect says that a tool with an effect has started in this turn, in whichever
// dispatch.
func (t *turn) anyEffect() bool {
	return slices.ContainsFunc(t.calls(), func(c turnkeeper.ToolCall) bool {
		if c.Effect == turnkeeper.EffectNone || !c.State.Executed() {
			return false
		}
		return c.State != turnkeeper.CallCancelled || c.Nonce != ""
	})
}

func pauseFor(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
