package simulation_test

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"turnkeeper/internal/memory"
)

// A wire leads from a process, or from a client, to the store. Requests take
// their time; they are refused, lost, or done and never answered.
type wire struct {
	w *world
	p *process // nil: a client's
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
		if a.chance(0.5) { // it was under way
			_ = do()
			l.note(request, "orphan")
		}
		runtime.Goexit()
	}
	if l.w.isAway() {
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

// ended is a request whose time is over before it is known to have arrived.
func (l *wire) ended(ctx context.Context, a *actor, request string, do func() error) error {
	a.apart()
	l.gate(a)
	if a.chance(0.5) && !l.w.isAway() {
		err := do()
		l.note(request, unanswered.with(err))
	}
	return ctx.Err()
}

// A fate is what becomes of a request.
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
	if l.w.isCalm() {
		return answered
	}
	switch draw := a.Float64(); {
	case draw < l.w.profile.requestsLost:
		return refused
	case draw < l.w.profile.requestsLost+l.w.profile.answersLost:
		return unanswered
	default:
		return answered
	}
}

// lag is how long a request is on its way, one way.
func (a *actor) lag() time.Duration {
	if !a.w.isCalm() && a.chance(0.01) {
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
	l.w.note(l.p, request, how, 0, 0)
}
