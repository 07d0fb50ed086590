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

// modelHealth holds what a turn knows about the health of models. Only the turn's goroutine uses it.
type modelHealth struct {
	grant turnkeeper.GrantID
	known map[string]turnkeeper.ModelHealth // models that are down, by name
	asked map[string]bool                   // models that got a request in the current call
}

func newModelHealth(record turnkeeper.Record) modelHealth {
	h := modelHealth{grant: record.Turn.GrantID, known: map[string]turnkeeper.ModelHealth{}, asked: map[string]bool{}}
	for _, m := range record.Down {
		h.known[m.Model] = m
	}
	return h
}

// down reports whether a model must not be asked: it is down, and this turn does not probe it.
func (h *modelHealth) down(name string) bool {
	m, known := h.known[name]
	return known && (m.Probe == "" || m.Probe != h.grant)
}

// probed reports whether this turn probes a model that is down.
func (h *modelHealth) probed(name string) bool {
	m, known := h.known[name]
	return known && m.Probe != "" && m.Probe == h.grant
}

// failed notes a fault of the service and returns the failure to write.
func (h *modelHealth) failed(name string, err *inference.Error) turnkeeper.ModelFailure {
	m := h.known[name]
	f := turnkeeper.ModelFailure{
		Model: name, Seen: m.Failures, ErrorClass: string(err.Class), Error: firstChars(err.Error(), maxHealthError), RetryAfter: err.RetryAfter,
	}
	m.Model, m.ErrorClass, m.Error, m.Probe = name, f.ErrorClass, f.Error, ""
	h.known[name] = m
	return f
}

// maxHealthError limits the stored error text of a model's newest failure, in characters.
const maxHealthError = 1000

// usable returns the models of the chain that may be asked: those that are not down. If
// all of them are down, it returns all of them once an effect has happened.
func (t *turn) usable(all []*candidate) []*candidate {
	up := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return t.health.down(c.name) })
	if len(up) == 0 && t.anyEffect() {
		return all
	}
	return up
}

// answeredBy notes that a model has answered. A refusal counts as an answer.
func (t *turn) answeredBy(name string) {
	delete(t.health.known, name)
	t.next.ModelFailures = slices.DeleteFunc(t.next.ModelFailures, func(f turnkeeper.ModelFailure) bool { return f.Model == name })
	if !slices.Contains(t.next.Answered, name) {
		t.next.Answered = append(t.next.Answered, name)
		slices.Sort(t.next.Answered)
	}
}

// gaveUp notes why a model was given up. A fault of the service goes into the next
// write. A model that refuses a request counts as available.
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

// A serviceError is a call that failed by a fault of the service. The same request may
// be answered later.
type serviceError struct {
	err      error
	class    string
	waitsFor []string      // models of the chain that may answer it later
	pause    time.Duration // time until one of them may be asked
	after    time.Duration // pause that a provider asked for
}

func (e *serviceError) Error() string { return e.err.Error() }
func (e *serviceError) Unwrap() error { return e.err }

// faultOf returns err, wrapped in a *serviceError if a model of the chain may answer the
// request later. given holds the failures of the models that were asked. If one of them
// gave an unusable answer, faultOf returns that failure and ignores the others, because the
// answer was paid for.
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
		// This includes the case that all models are known to be down. The grant waits for
		// them too, but it goes by the models that the newest worker has registered, which
		// may differ from those of this definition.
		fault.pause = turnkeeper.Backoff(t.record.Failures + 1)
	}
	return fault
}

// unconfigured returns the error of a turn whose models this worker does not know. A
// worker that knows them may come, or the settings may be corrected. The error says
// nothing about the models.
func (t *turn) unconfigured(names []string, err *inference.Error) error {
	return &serviceError{err: err, class: string(err.Class), waitsFor: names, pause: turnkeeper.Backoff(t.record.Failures + 1)}
}

// allDown returns the error of a call that is not made because every model is down and
// another turn probes them.
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

// The pauses between retries of the whole chain, once an effect has happened.
const (
	firstLongPause = time.Second
	maxLongPause   = 8 * time.Second
)

// longPause returns how long to wait before the whole chain is asked again, after it
// was asked the given number of times. ok is false if the turn ends instead: no effect
// has happened, so the message can wait, or no time is left.
func (t *turn) longPause(ctx context.Context, err error, times int) (wait time.Duration, ok bool) {
	fault, service := errors.AsType[*serviceError](err)
	if !service || ctx.Err() != nil || !t.anyEffect() {
		return 0, false
	}
	wait = max(min(firstLongPause<<min(times-1, 10), maxLongPause), fault.after)
	deadline, bounded := ctx.Deadline()
	return wait, !bounded || wait < time.Until(deadline)
}

// anyEffect reports whether a tool with an effect has started in this turn, in any dispatch.
func (t *turn) anyEffect() bool {
	return slices.ContainsFunc(t.calls(), func(c turnkeeper.ToolCall) bool {
		if c.Effect == turnkeeper.EffectNone || !c.State.Executed() {
			return false
		}
		return c.State != turnkeeper.CallCancelled || c.Nonce != ""
	})
}
