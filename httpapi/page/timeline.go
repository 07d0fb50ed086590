package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/words"
)

// A Span is a stretch of a turn's time: what was done, or waited for.
type Span struct {
	Kind   string // waited, held, model or tool: what a bar's colour says too
	What   string
	Note   string
	State  string // empty: none
	Tokens int64
	Start  time.Time
	End    time.Time // zero: it goes on
	Anchor string    // where on the page there is more; empty: nowhere

	Left, Width int // of the bar, in thousandths of the time line
}

// Took returns the time of a span that has ended.
func (s Span) Took() time.Duration { return max(s.End.Sub(s.Start), 0) }

// Timeline returns what happened when, in order.
func (p Turn) Timeline() []Span {
	spans := append(p.held(), p.done()...)
	slices.SortStableFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return p.draw(spans)
}

// dispatchEnds say how a grant ended.
var dispatchEnds = map[string]string{
	"finished": "to the end", "lost": "and was lost", "handed_back": "and handed it back", "deferred": "and put it off",
	"unclaimed": "and never took it", "waiting": "until it waited",
}

// gaps say what a turn waited for after a grant had ended like this.
var gaps = map[string]string{
	"lost": "Waits for another worker: the one before was lost", "handed_back": "Waits for a worker: the one before stopped",
	"deferred": "Put off", "unclaimed": "Waits for a worker: nobody had taken it", "waiting": "Waits for detached calls",
}

// held returns who held the turn when, and what it waited for between.
func (p Turn) held() (spans []Span) {
	waited := Span{Kind: "waited", What: "Waits in the inbox", Start: latest(p.Message.AcceptedAt, p.Message.DueAt)}
	if p.Turn.Attempt > 1 || waited.Start.After(p.Turn.CreatedAt) { // what went before belongs to earlier attempts
		waited.Start = p.Turn.CreatedAt
	}
	for i, d := range p.Dispatches {
		waited.End = d.GrantedAt
		if waited.End.Sub(waited.Start) >= time.Millisecond {
			spans = append(spans, waited)
		}
		who := cmp.Or(string(p.Holder(d)), "a worker")
		span := Span{Kind: "held", What: "Held by " + who, Note: fmt.Sprintf("dispatch %d", i+1), Start: d.GrantedAt, End: d.EndedAt}
		if d.Outcome != "" {
			span.Note += ", " + cmp.Or(dispatchEnds[d.Outcome], d.Outcome)
		}
		if d.Outcome != "" && d.Outcome != "finished" && d.Outcome != "waiting" {
			span.State = d.Outcome
		}
		spans = append(spans, span)
		waited = Span{Kind: "waited", What: cmp.Or(gaps[d.Outcome], "Waits"), Start: d.EndedAt}
	}
	if p.Open() && p.Turn.State != turnkeeper.TurnRunning && !waited.Start.IsZero() {
		spans = append(spans, waited)
	}
	return spans
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// done returns what models and tools did.
func (p Turn) done() (spans []Span) {
	for _, f := range p.Failed {
		what := fmt.Sprintf("Round %d", f.Round)
		if f.Model != "" {
			what += ": " + f.Provider + "/" + f.Model
		}
		spans = append(spans, Span{
			Kind: "model", What: what, Note: f.Class, State: "failed", Tokens: f.Usage.Total(),
			Start: f.EndedAt.Add(-f.Latency), End: f.EndedAt, Anchor: "rounds",
		})
	}
	spans = append(spans, p.openRound()...)
	for _, r := range p.Rounds {
		span := Span{
			Kind: "model", What: fmt.Sprintf("Round %d: %s/%s", r.Number, r.Provider, r.Model), Tokens: r.Usage.Total(),
			Start: r.EndedAt.Add(-r.Latency), End: r.EndedAt, Anchor: fmt.Sprintf("round-%d", r.Number),
		}
		if r.Attempts > 1 {
			span.Note = "asked again " + words.Plural(r.Attempts-1, "time")
		}
		spans = append(spans, span)
		for _, c := range r.Calls {
			spans = append(spans, p.call(r, c))
		}
	}
	return spans
}

// openRound returns the model call of a turn that runs.
func (p Turn) openRound() []Span {
	u := p.Turn.UnderWay
	if u == nil || len(u.Calls) > 0 {
		return nil
	}
	return []Span{{Kind: "model", What: fmt.Sprintf("Round %d", u.Round), Note: "under way", Tokens: u.OutputTokens, Start: u.Since}}
}

func (p Turn) call(r turnkeeper.Round, c turnkeeper.ToolCall) Span {
	span := Span{
		Kind: "tool", What: c.Name, State: string(c.State), Tokens: c.Usage.Total(), Start: c.StartedAt, End: c.EndedAt, Anchor: c.Key.String(),
	}
	switch {
	case c.Elsewhere:
		span.Note = "detached"
	case p.Background(c):
		span.Note = "in the background"
	case c.Starts > 1:
		span.Note = fmt.Sprintf("started %d times", c.Starts)
	}
	if span.Start.IsZero() && !c.EndedAt.IsZero() { // a call that needs no start on record
		span.Start = latest(c.EndedAt.Add(-c.Duration), r.EndedAt)
	}
	if span.Start.IsZero() {
		span.Start = r.EndedAt
	}
	return span
}

// draw gives each span its place between the first beginning and the last end.
func (p Turn) draw(spans []Span) []Span {
	if len(spans) == 0 {
		return nil
	}
	from, to := spans[0].Start, p.Turn.EndedAt
	if to.IsZero() {
		to = p.Now
	}
	for _, s := range spans {
		to = latest(to, s.End)
	}
	whole := max(to.Sub(from), time.Millisecond)
	const least = 4 // of a bar that can be seen
	for i := range spans {
		end := spans[i].End
		if end.IsZero() {
			end = to
		}
		left := int(1000 * spans[i].Start.Sub(from) / whole)
		right := int(1000 * end.Sub(from) / whole)
		left = min(max(left, 0), 1000-least)
		spans[i].Left, spans[i].Width = left, min(max(right-left, least), 1000-left)
	}
	return spans
}

// Since returns how long after the first span another begins.
func (p Turn) Since(first, s Span) string { return words.Exact(max(s.Start.Sub(first.Start), 0)) }
