package simulation_test

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"turnkeeper/internal/memory"
)

// A wire connects a process or a client to the store. Requests take time, and may be refused, lost,
// or done without an answer.
type wire struct {
	env *env
	p   *process // nil: a client
}

func (l *wire) Carry(ctx context.Context, request string, do func() error) error {
	a := actorOf(ctx)
	l.gate(a)
	fate := l.fate(a)
	if !sleep(ctx, a.lag()) {
		return l.ended(ctx, a, request, do)
	}
	a.apart()
	if l.p != nil && l.p.isDead() {
		if a.chance(0.5) { // the request was already sent
			_ = do()
			l.note(request, "orphan")
		}
		runtime.Goexit()
	}
	if l.env.databaseDown() {
		fate = refused
	}
	var err error
	if fate != refused {
		err = do()
	}
	l.note(request, fate.with(err))
	if !sleep(ctx, a.lag()) && fate != refused && err == nil {
		fate = unanswered
	}
	l.gate(a)
	switch {
	case fate == refused:
		return fmt.Errorf("%w: the request was lost", memory.ErrAway)
	case fate == unanswered && ctx.Err() != nil:
		return ctx.Err()
	case fate == unanswered:
		return fmt.Errorf("%w: the answer was lost", memory.ErrAway)
	default:
		return err
	}
}

// ended handles a request whose context ended while it was on its way.
func (l *wire) ended(ctx context.Context, a *actor, request string, do func() error) error {
	a.apart()
	l.gate(a)
	if a.chance(0.5) && !l.env.databaseDown() {
		err := do()
		l.note(request, unanswered.with(err))
	}
	return ctx.Err()
}

// A fate is the outcome of a request on the wire.
type fate int

const (
	answered   fate = iota
	refused         // not done
	unanswered      // done
)

func (f fate) with(err error) string {
	how := [...]string{"", "refused", "unanswered"}[f]
	if err != nil && f != refused {
		how += "!"
	}
	return how
}

func (l *wire) fate(a *actor) fate {
	if l.env.isQuiet() {
		return answered
	}
	switch draw := a.Float64(); {
	case draw < l.env.profile.requestsLost:
		return refused
	case draw < l.env.profile.requestsLost+l.env.profile.answersLost:
		return unanswered
	default:
		return answered
	}
}

// lag returns the one-way delay of a request.
func (a *actor) lag() time.Duration {
	if !a.env.isQuiet() && a.chance(0.01) {
		return a.between(0, 6*time.Second)
	}
	return a.between(100*time.Microsecond, 3*time.Millisecond)
}

func (l *wire) gate(a *actor) {
	if l.p != nil {
		l.p.gate(a)
	}
}

func (l *wire) note(request, how string) {
	if request == "beat" && how == "" || request == "next due" || request == "tick.look" && how == "" {
		return
	}
	l.env.note(l.p, request, how, 0, 0)
}
