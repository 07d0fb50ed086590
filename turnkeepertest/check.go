package turnkeepertest

import (
	"fmt"
	"time"

	"turnkeeper"
)

// check checks Turnkeeper's invariants and the tools' promises after a run, and adds what
// fails to the problems.
func (w *world) check() {
	for _, v := range w.store.Check(time.Second) {
		w.problem("invariant broken: %s", v)
	}
	w.mu.Lock()
	var found []string
	for _, call := range w.callOrder {
		found = append(found, w.runs[call].broken(call)...)
	}
	for i, f := range w.faults {
		if !w.struck[i] {
			found = append(found, fmt.Sprintf("the fault %q did not happen: there were %d of it in the run", f,
				w.passed[f.at.Name]))
		}
	}
	w.mu.Unlock()
	for _, text := range found {
		w.problem("%s", text)
	}
}

// broken lists the promises of its tool that a call has broken.
func (r *runs) broken(call callOf) (found []string) {
	tell := func(format string, args ...any) {
		name := fmt.Sprintf("tool %s (%s), call %s of turn %d: ", r.spec.Name, r.declared(), call.key, call.turn)
		found = append(found, name+fmt.Sprintf(format, args...))
	}
	for _, n := range r.begun {
		if r.spec.Effect == turnkeeper.EffectOnce && !r.spec.Transactional && n > 1+r.settled {
			tell("it was started %d times", n)
		}
	}
	what, again := r.again()
	switch {
	case r.spec.Effect == turnkeeper.EffectNone && len(r.effects) > 0:
		tell("it had the effect %q; a tool that only reads has none, and may be run again at any time",
			r.effects[0].What)
	case again && r.spec.Transactional:
		tell(
			"it had the effect %q again when it was run again: what is outside of its transaction is not undone with it", what)
	case again:
		tell("it had the effect %q again when it was started again: it must pass on the call's idempotency key", what)
	}
	return found
}

// again returns an effect that two runs of the call both had.
func (r *runs) again() (what string, again bool) {
	first := map[string]int{} // run by effect
	for _, e := range r.effects {
		if run, had := first[e.What]; had && run != e.run {
			return e.What, true
		}
		first[e.What] = e.run
	}
	return "", false
}

// declared returns the effect that the tool declares, or "transactional".
func (r *runs) declared() string {
	if r.spec.Transactional {
		return "transactional"
	}
	return string(r.spec.Effect)
}
