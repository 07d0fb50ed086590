package turnctl

import (
	"context"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A comparison says where a request differs from the one before it, or why that is not known.
type comparison struct {
	*prompt.Comparison
	before, after string // excerpts of what differs
	unknown       error  // nil: it is known
}

// comparisons compares the requests of a turn that begin an epoch with those before them, by round.
func comparisons(ctx context.Context, store *operate.Store, turn operate.TurnView,
	part excerpter) (map[int]comparison, error) {
	var requests *setup.Requests
	found := map[int]comparison{}
	for _, r := range turn.Rounds {
		if r.Recipe == nil || r.Recipe.Start == nil || !shownInFull(*r.Recipe.Start) {
			continue
		}
		if requests == nil {
			opened, err := setup.OpenRequests(ctx, store, turn.Turn.ID)
			if err != nil {
				return map[int]comparison{r.Number: {unknown: err}}, ctx.Err()
			}
			requests = opened
		}
		c := comparison{}
		if c.Comparison, c.unknown = requests.Compare(ctx, r.Number); c.Comparison != nil && c.Differs != nil {
			c.before, c.after = c.Differs.Excerpts(part)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if c.Comparison != nil || c.unknown != nil {
			found[r.Number] = c
		}
	}
	return found, nil
}

// requests lists what requests omitted to fit the context window, and where they do not extend the one before.
func (x *explainer) requests() (said []string) {
	for _, r := range x.Rounds {
		c := r.Recipe
		if c == nil {
			continue
		}
		var parts []string
		if c.Start != nil {
			parts = epochFacts(*c.Start)
		}
		if c.Cut {
			parts = append(parts, "the provider seems to have truncated it silently")
		}
		if len(parts) > 0 {
			said = append(said, fmt.Sprintf("Request %d: %s.", r.Number, strings.Join(parts, "; ")))
		}
		if c, known := x.differs[r.Number]; known {
			said = append(said, c.said())
		}
	}
	return said
}

// shownInFull reports whether it is worth a line that an epoch began: a schedule's rule is not, in each run.
func shownInFull(e turnkeeper.Epoch) bool {
	return e.Reason != "" && (e.Reason != prompt.EpochHistory || e.Chain == "")
}

// said says where a request differs from the one before it.
func (c comparison) said() string {
	if c.unknown != nil {
		return "It cannot be compared with the request before it: " +
			words.Sentence(term.OneLine(c.unknown.Error(), 300))
	}
	with := fmt.Sprintf("Compared with request %d of turn %d, ", c.Round, c.Turn)
	switch d := c.Differs; {
	case d == nil:
		return with + "it only adds messages."
	case d.Before == "":
		return with + term.OneLine(d.Where(), 300) + ": " + words.Quote(c.after) + "."
	case d.After == "":
		return with + term.OneLine(d.Where(), 300) + ": " + words.Quote(c.before) + "."
	default:
		return with + term.OneLine(d.Where(), 300) + ": " + words.Quote(c.before) + " became " +
			words.Quote(c.after) + "."
	}
}

// epochFacts says why a request does not extend the one before it, and what it leaves out.
func epochFacts(e turnkeeper.Epoch) (facts []string) {
	if shownInFull(e) {
		facts = append(facts, "it does not extend the request before it, because "+prompt.Why(e))
	}
	if e.Dropped != "" {
		facts = append(facts, "the results of calls "+e.Dropped+" were replaced by a line each")
	}
	if e.LeanPast != 0 {
		facts = append(facts, fmt.Sprintf("turns up to %d were shown without their results", e.LeanPast))
	}
	if e.Omitted > 0 {
		facts = append(facts, "it left out "+term.Plural(e.Omitted, "earlier turn"))
	}
	if e.Summary != 0 {
		facts = append(facts, fmt.Sprintf("a summary replaced the turns up to %d", e.Summary))
	}
	if e.Room > 0 {
		facts = append(facts, "it was shortened after the provider had refused it as too long")
	}
	if note := prompt.RecordNote(e); note != "" {
		facts = append(facts, note)
	}
	return facts
}
