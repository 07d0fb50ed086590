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
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
)

// modelHealth holds what a turn knows about the health of models. Only the turn's goroutine uses it.
type modelHealth struct {
	grant    turnkeeper.GrantID
	lane     turnkeeper.Lane
	known    map[string]modelhealth.Health  // models that are down, by name
	suspects map[string]modelhealth.Suspect // models that have failed the message, by name
	// of models that got a request in the current call: how many were the turn's own
	asked map[string]int
	// refusedProbe are models that have refused the worker's own request.
	refusedProbe map[string]bool
}

func newModelHealth(record *turnlog.Record) modelHealth {
	h := modelHealth{
		grant: record.Turn.GrantID, lane: record.Turn.Lane, known: map[string]modelhealth.Health{},
		suspects: map[string]modelhealth.Suspect{}, asked: map[string]int{}, refusedProbe: map[string]bool{},
	}
	for _, m := range record.Down {
		h.known[m.Model] = m
	}
	for _, s := range record.Suspects {
		h.suspects[s.Model] = s
	}
	return h
}

// inDoubt reports whether the worker must make a request of its own before it asks a model: the message itself, or one
// of its lane, may be what the model fails at. Either the turn probes the model, or the model has answered nobody since
// it failed the message.
func (h *modelHealth) inDoubt(name string) bool {
	return h.probed(name) && slices.Contains(h.known[name].Failed, h.lane) || h.suspects[name].Open
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

// isUp records that a model has answered the worker's own request.
func (h *modelHealth) isUp(name string) {
	delete(h.known, name)
	if s, ok := h.suspects[name]; ok {
		s.Open = false
		h.suspects[name] = s
	}
}

// failed records a fault of the service and returns the failure to write. requests is the number of the turn's requests
// that may have caused it.
func (h *modelHealth) failed(name string, err *inference.Error, requests int) modelhealth.Failure {
	m := h.known[name]
	f := modelhealth.Failure{
		Model: name, Seen: m.Failures, ErrorClass: string(err.Class), Error: firstChars(err.Error(), maxHealthError),
		RetryAfter: err.RetryAfter,
		Requests:   requests,
	}
	m.Model, m.ErrorClass, m.Error, m.Probe = name, f.ErrorClass, f.Error, ""
	h.known[name] = m
	return f
}

// causes returns the number of requests of the current call that may have caused a failure: 0 if it concerns every
// request alike.
func (h *modelHealth) causes(name string, err *inference.Error) int {
	if !err.Class.OfService() || !err.ByRequest {
		return 0
	}
	return h.asked[name]
}

// guilty reports whether a failure is the message's own: the model has answered others often enough while it failed
// this message.
func (h *modelHealth) guilty(name string, err *inference.Error) bool {
	n := h.causes(name, err)
	return n > 0 && h.suspects[name].Guilty(n)
}

// pause returns how long the turn leaves a model alone after a failure. A message that has a pair with the model waits
// for itself.
func (h *modelHealth) pause(name string, err *inference.Error) time.Duration {
	n := h.known[name].Failures
	if s := h.suspects[name]; s.Paired() && h.causes(name, err) > 0 {
		n = s.Failures
	}
	return max(modelhealth.Backoff(n+1), err.RetryAfter)
}

// maxHealthError limits the stored error text of a model's newest failure, in characters.
const maxHealthError = 1000

// usable returns the models of the chain that may be asked: those that are not down. If
// all of them are down, it returns all of them once an effect has happened.
func (m *models) usable(all []*candidate, effected bool) []*candidate {
	up := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return m.health.down(c.ref) })
	if len(up) == 0 && effected {
		return all
	}
	return up
}

// gaveUp records why a model was given up. A fault of the service goes into the next
// write. A model that refuses a request counts as available.
func (m *models) gaveUp(next *pending, name string, err *inference.Error) {
	_, asked := m.health.asked[name]
	switch {
	case !asked: // nothing was sent
	case m.health.guilty(name, err):
		m.log.Warn("a model fails at this message, and answers others", zap.String("model", name),
			zap.String("class", string(err.Class)))
	case err.Class.OfService():
		f := m.health.failed(name, err, m.health.causes(name, err))
		next.failed(f)
		m.log.Warn("a model is unavailable", zap.String("model", name), zap.String("class", f.ErrorClass),
			zap.Duration("pause", f.Pause()))
	default:
		delete(m.health.known, name)
		next.refused(name)
	}
}

// answered records that a model has answered.
func (m *models) answered(next *pending, name string) {
	delete(m.health.known, name)
	next.answered(name)
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
func (m *models) faultOf(all []*candidate, given map[string]*inference.Error, err error) error {
	for _, c := range all {
		if failure := given[c.ref]; failure != nil && failure.Class == inference.ClassBadOutput {
			return failure
		}
	}
	fault := &serviceError{err: err}
	var guilty *inference.Error
	for _, c := range all {
		failure := given[c.ref]
		switch {
		case failure != nil && m.health.guilty(c.ref, failure):
			guilty = cmp.Or(guilty, failure)
			continue
		case failure != nil && failure.Class.OfService():
			fault.class = cmp.Or(fault.class, string(failure.Class))
			pause := m.health.pause(c.ref, failure)
			if fault.pause == 0 || pause < fault.pause {
				fault.pause, fault.after = pause, failure.RetryAfter
			}
		case failure == nil && m.health.down(c.ref):
			fault.class = cmp.Or(fault.class, m.health.known[c.ref].ErrorClass)
		default:
			continue
		}
		fault.waitsFor = append(fault.waitsFor, c.ref)
	}
	if len(fault.waitsFor) == 0 {
		if guilty != nil {
			return &guiltyError{guilty}
		}
		return err
	}
	if fault.pause == 0 {
		// This includes the case that all models are known to be down. The grant waits for
		// them too, but it goes by the models that the newest worker has registered, which
		// may differ from those of this definition.
		fault.pause = modelhealth.Backoff(m.failures + 1)
	}
	return fault
}

// A guiltyError is a model's failure that the message itself causes: the model has answered others meanwhile.
type guiltyError struct{ err *inference.Error }

func (e *guiltyError) Error() string {
	return "the model fails at this message, and answers others: " + e.err.Error()
}
func (e *guiltyError) Unwrap() error { return e.err }

// unconfigured returns the error of a turn whose models this worker does not know. A
// worker that knows them may come, or the settings may be corrected. The error says
// nothing about the models.
func (m *models) unconfigured(names []string, err *inference.Error) error {
	return &serviceError{err: err, class: string(err.Class), waitsFor: names,
		pause: modelhealth.Backoff(m.failures + 1)}
}

// allDown returns the error of a call that is not made because every model is down and
// another turn probes them. It names what was wrong with them, but not the providers' own words: these answered other
// messages, and may quote them.
func (m *models) allDown(all []*candidate) error {
	var details []string
	for _, c := range all {
		details = append(details, c.ref+" ("+m.health.known[c.ref].ErrorClass+")")
	}
	first := m.health.known[all[0].ref]
	return &inference.Error{
		Class: inference.Class(first.ErrorClass), Provider: all[0].Provider, Model: all[0].Name,
		Detail: "not asked, because it is down: " + strings.Join(details, ", "),
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
func longPause(ctx context.Context, err error, times int, effected bool) (wait time.Duration, ok bool) {
	fault, service := errors.AsType[*serviceError](err)
	if !service || ctx.Err() != nil || !effected {
		return 0, false
	}
	wait = max(min(firstLongPause<<min(times-1, 10), maxLongPause), fault.after)
	deadline, bounded := ctx.Deadline()
	return wait, !bounded || wait < time.Until(deadline)
}
