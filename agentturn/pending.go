package agentturn

import (
	"cmp"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
)

// A pending is the next write to the journal: an entry, and earlier ones, each with an answer and the results of its
// calls.
type pending struct {
	turnlog.Entry
	held leases // of the results
}

// leases are the memory of results.
type leases []*membudget.Lease

func (l *leases) release() {
	for _, memory := range *l {
		memory.Release()
	}
	*l = nil
}

// next begins another entry of the write, for a further answer. The events belong to the one before.
func (p *pending) next(events []turnkeeper.Event) {
	p.Events = events
	p.Entry = turnlog.Entry{Earlier: p.Sequence()}
}

// empty reports whether there is nothing to write.
func (p *pending) empty() bool {
	return len(p.Earlier) == 0 && p.Round == nil && p.Outcome == nil &&
		len(p.Verdicts) == 0 && len(p.Starts) == 0 && len(p.Results) == 0 && len(p.Events) == 0 &&
		len(p.Asks) == 0 && len(p.Seen) == 0 && len(p.Inputs) == 0 && len(p.Withdrawn) == 0
}

// answer adds the result of a call. It takes the place of one that says that the call
// went to the background, which need not be written any more.
func (p *pending) answer(result turnlog.CallResult) {
	p.Results = slices.DeleteFunc(p.Results, func(r turnlog.CallResult) bool { return r.Key == result.Key })
	p.Results = append(p.Results, result)
}

// dropResult removes the result of a start that could not be written.
func (p *pending) dropResult(nonce string) {
	p.Results = slices.DeleteFunc(p.Results, func(r turnlog.CallResult) bool { return r.Nonce == nonce })
}

// dropStarts removes starts that could not be written: their calls did not run, and
// must not look as if they had. The start of a call that has run anyway, because it
// only reads, stays. It reports whether there were any.
func (p *pending) dropStarts() bool {
	all := len(p.Starts)
	p.Starts = slices.DeleteFunc(p.Starts, func(s turnlog.CallStart) bool {
		return !slices.ContainsFunc(p.Results, func(r turnlog.CallResult) bool { return r.Key == s.Key })
	})
	return len(p.Starts) < all
}

// hasOutput reports whether an output waits to be written, which a call may read.
func (p *pending) hasOutput() bool {
	return slices.ContainsFunc(p.Results, func(r turnlog.CallResult) bool { return r.Output != nil })
}

// hasLabels reports whether labels wait to be written.
func (p *pending) hasLabels() bool {
	return len(p.Labels) > 0 || slices.ContainsFunc(p.Results, func(r turnlog.CallResult) bool {
		return len(r.Labels) > 0
	})
}

// hasEffect reports whether a result of an effect waits to be written.
func (p *pending) hasEffect() bool {
	return slices.ContainsFunc(p.Results, func(r turnlog.CallResult) bool { return r.Nonce != "" })
}

// answered records that a model has answered a request of the turn.
func (p *pending) answered(model string) { p.up(&p.Answered, model) }

// refused records that a model has refused a request of the turn.
func (p *pending) refused(model string) { p.up(&p.Refused, model) }

// up adds a model to a list of models that are available.
func (p *pending) up(list *[]string, model string) {
	p.ModelFailures = slices.DeleteFunc(p.ModelFailures, func(f modelhealth.Failure) bool { return f.Model == model })
	if !slices.Contains(*list, model) {
		*list = append(*list, model)
		slices.Sort(*list)
	}
}

// news reports whether the health of a model has changed.
func (p *pending) news() bool { return len(p.ModelFailures) > 0 || len(p.Probed) > 0 }

// failed records that a model is unavailable.
func (p *pending) failed(f modelhealth.Failure) {
	for _, list := range []*[]string{&p.Answered, &p.Probed, &p.Refused} {
		*list = slices.DeleteFunc(*list, func(n string) bool { return n == f.Model })
	}
	p.ModelFailures = slices.DeleteFunc(p.ModelFailures, func(known modelhealth.Failure) bool {
		return known.Model == f.Model
	})
	p.ModelFailures = append(p.ModelFailures, f)
	slices.SortFunc(p.ModelFailures, func(a, b modelhealth.Failure) int { return cmp.Compare(a.Model, b.Model) })
}
