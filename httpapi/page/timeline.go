package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
)

// A Span is a bar of the timeline: a wait, a dispatch, a model call or a tool call.
type Span struct {
	Kind   string // waited, held, model or tool; sets the bar's colour
	What   string
	Note   string
	State  string // empty: none
	Tokens int64
	Start  time.Time
	End    time.Time // zero: not ended
	Anchor string    // id of the element with details; empty: none

	Left, Width int // of the bar, in thousandths of the timeline
}

// Took returns the duration of an ended span.
func (s Span) Took() time.Duration { return max(s.End.Sub(s.Start), 0) }

// Timeline returns all spans, ordered by start.
func (p Turn) Timeline() []Span {
	spans := append(append(p.held(), p.done()...), p.refused()...)
	slices.SortStableFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return p.draw(spans)
}

// dispatchEnds maps outcomes of dispatches to notes.
var dispatchEnds = map[string]string{
	"finished": "finished", "lost": "worker lost", "handed_back": "handed back", "deferred": "deferred",
	"unclaimed": "never begun", "waiting": "until the turn waited",
}

// gaps maps outcomes of dispatches to the wait that follows, unless the turn itself has said what it waits for.
var gaps = map[string]string{
	"lost":        "Waits for another worker: the last one was lost",
	"handed_back": "Waits for a worker: the last one stopped",
	"deferred":    "Deferred", "unclaimed": "Waits for a worker: none had begun it",
}

// held returns a span for each dispatch, and for the waits before, between and after them.
func (p Turn) held() (spans []Span) {
	waited := Span{Kind: "waited", What: "Waits in the inbox", Start: latest(p.Message.AcceptedAt, p.Message.DueAt)}
	if p.Turn.Attempt > 1 || waited.Start.After(p.Turn.CreatedAt) { // earlier time belongs to earlier attempts
		waited.Start = p.Turn.CreatedAt
	}
	for i, d := range p.Dispatches {
		waited.End = d.GrantedAt
		if waited.End.Sub(waited.Start) >= time.Millisecond {
			spans = append(spans, waited)
		}
		who := cmp.Or(string(p.Holder(d)), "a worker")
		span := Span{Kind: "held", What: "Held by " + who, Note: fmt.Sprintf("dispatch %d", i+1), Start: d.GrantedAt,
			End: d.EndedAt}
		if d.Outcome != "" {
			span.Note += ", " + cmp.Or(dispatchEnds[d.Outcome], d.Outcome)
		}
		if d.Outcome != "" && d.Outcome != "finished" && d.Outcome != "waiting" {
			span.State = d.Outcome
		}
		spans = append(spans, span)
		waited = Span{Kind: "waited", What: cmp.Or(p.waitedFor(d), gaps[d.Outcome], "Waits"), Start: d.EndedAt}
	}
	if p.Open() && p.Turn.State != turnkeeper.TurnRunning && !waited.Start.IsZero() {
		spans = append(spans, waited)
	}
	return spans
}

// waitedFor says what the turn waited for after a dispatch, by the wait that it began in it. It is empty if events are
// gone.
func (p Turn) waitedFor(d turnkeeper.Dispatch) string {
	if last := p.Dispatches[len(p.Dispatches)-1]; last.GrantID == d.GrantID && p.Open() {
		if reasons := waiting.Parking(p.Message.Waits); len(reasons) > 0 {
			return "Waits for " + waiting.For(reasons)
		}
	}
	for _, w := range slices.Backward(p.Waited) {
		if !w.At.Before(d.GrantedAt) && !d.EndedAt.IsZero() && !w.At.After(d.EndedAt) {
			return "Waits for " + waiting.For(w.Reasons)
		}
	}
	return ""
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// done returns the spans of model and tool calls.
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
			span.Note = "retried " + words.Plural(r.Attempts-1, "time")
		}
		spans = append(spans, span)
		for _, c := range r.Calls {
			spans = append(spans, p.call(r, c))
		}
	}
	return spans
}

// refused returns the writes that had to wait for the database, and the one that waits now.
func (p Turn) refused() (spans []Span) {
	for _, r := range p.Refused {
		spans = append(spans, Span{Kind: "waited", What: words.Refused(r.For, r.SQLState), Start: r.EndedAt.Add(-r.For),
			End: r.EndedAt})
	}
	if u := p.Turn.UnderWay; u != nil && u.RefusedFor > 0 {
		spans = append(spans, Span{
			Kind: "waited", What: words.Refused(u.RefusedFor, u.RefusedCode), Note: "in progress",
			Start: p.Now.Add(-u.RefusedFor),
		})
	}
	for i := range spans {
		spans[i].What = strings.ToUpper(spans[i].What[:1]) + spans[i].What[1:]
	}
	return spans
}

// openRound returns the current model call of a running turn.
func (p Turn) openRound() []Span {
	u := p.Turn.UnderWay
	if u == nil || len(u.Calls) > 0 || u.RefusedFor > 0 {
		return nil
	}
	return []Span{{Kind: "model", What: fmt.Sprintf("Round %d", u.Round), Note: "in progress", Tokens: u.OutputTokens,
		Start: u.Since}}
}

func (p Turn) call(r turnkeeper.Round, c turnkeeper.ToolCall) Span {
	span := Span{
		Kind: "tool", What: c.Name, State: string(c.State), Tokens: c.Usage.Total(), Start: c.StartedAt, End: c.EndedAt,
		Anchor: c.Key.String(),
	}
	switch {
	case c.Awaited:
		span.Note = "detached"
	case p.Background(c):
		span.Note = "in the background"
	case c.Starts > 1:
		span.Note = fmt.Sprintf("started %d times", c.Starts)
	}
	if span.Start.IsZero() && !c.EndedAt.IsZero() { // a call without a recorded start
		span.Start = latest(c.EndedAt.Add(-c.Duration), r.EndedAt)
	}
	if span.Start.IsZero() {
		span.Start = r.EndedAt
	}
	return span
}

// draw sets Left and Width, between the first start and the last end.
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
	const least = 4 // minimum width of a visible bar
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

// Since returns the time from the start of the first span to the start of s.
func (p Turn) Since(first, s Span) string { return words.Exact(max(s.Start.Sub(first.Start), 0)) }
