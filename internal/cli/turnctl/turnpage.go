package turnctl

import (
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/traceparent"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A turnPage prints a turn as text.
type turnPage struct {
	*term.Screen
	term.Clock
	operate.TurnView

	full bool // full arguments and results instead of previews
}

func (p *turnPage) print() {
	p.title()
	p.exchange()
	p.outcome()
	p.rounds()
	p.awaited()
	p.tree()
	p.dispatches()
	p.refused()
}

func (p *turnPage) title() {
	t := p.Turn
	p.Line("%s  %s", p.Paint(term.Bold, fmt.Sprintf("Turn %d", t.ID)), p.Paint(term.ToneOf(t.State),
		term.SignOf(t.State)+" "+string(t.State)))
	about := []string{
		"agent " + t.Agent, "conversation " + words.Conversation(t.User, t.Conversation), "lane " + string(t.Lane),
		fmt.Sprintf("message %d", t.MessageID), fmt.Sprintf("attempt %d", t.Attempt), p.trigger(),
	}
	p.Line("%s", p.Paint(term.Dim, term.OneLine(strings.Join(about, " · "), 0)))
}

func (p *turnPage) trigger() string {
	m := p.Message
	if m.Trigger == turnkeeper.TriggerSchedule {
		return fmt.Sprintf("started by schedule %s for %s", m.Schedule, p.Moment(m.Slot))
	}
	return "started by a message"
}

// exchange prints the message and the reply.
func (p *turnPage) exchange() {
	p.heading("Asked", p.At(p.Message.AcceptedAt))
	p.quote(p.Message.Body)
	if r := p.Reply; r != nil {
		p.heading("Answered", fmt.Sprintf("reply %d, %s%s", r.ID, p.At(r.CreatedAt), labelsOf(*r)))
		if r.Body == "" {
			p.Line("  %s", p.Paint(term.Dim, silentReply))
		} else {
			p.quote(r.Body)
		}
	}
	if p.Turn.InnerDialogue != "" {
		p.heading("Inner dialogue", "")
		p.quote(p.Turn.InnerDialogue)
	}
}

func (p *turnPage) heading(name, beside string) {
	p.Line("")
	p.Line("%s", strings.TrimRight(p.Paint(term.Bold, name)+"  "+p.Paint(term.Dim, beside), " "))
}

func (p *turnPage) quote(text string) {
	for _, line := range term.Wrap(text, p.Readable()-4) {
		p.Line("%s", strings.TrimRight("  "+p.Paint(term.Dim, "│")+" "+line, " "))
	}
}

func (p *turnPage) outcome() {
	t := p.Turn
	p.heading("Outcome", "")
	list := pairs{Screen: p.Screen, indent: "  ", width: 14}
	list.add("stop reason", p.stopReason())
	switch {
	case t.Silence != nil:
		list.add("now", p.Paint(term.Bad, term.OneLine(words.Silence(t.WorkerID, *t.Silence, "the turn", p.Moment), 0)))
	case t.UnderWay != nil:
		list.add("now", term.OneLine(words.UnderWay(*t.UnderWay), 0))
	}
	list.add("took", p.took())
	list.add("rounds", fmt.Sprintf("%s, %d charged", term.Plural(t.InferenceRounds, "model call"), t.ChargedRounds))
	list.add("tool calls", fmt.Sprintf("%d executed", t.ExecutedCalls))
	list.add("tokens", tokens(t.Usage))
	if t.ErrorClass != "" {
		list.add("error class", p.Paint(term.Bad, term.OneLine(t.ErrorClass, 0)))
	}
	if t.Error != "" {
		list.add("error", term.Wrap(t.Error, p.Readable()-16)...)
	}
	if r := p.End; r != nil {
		name := "cancellation"
		if r.How == turnlog.EndFinish {
			name = "finish"
		}
		list.add(name, term.OneLine(strings.TrimSpace("requested "+p.At(r.AskedAt)+" "+r.Reason), 0))
	}
	if !t.State.Terminal() && !t.DueAt.IsZero() {
		list.add("not before", p.At(t.DueAt))
	}
	list.add("deleted", words.Expired(t, p.Outputs, p.Moment)...)
	list.add("definition", term.Cut(t.DefinitionHash, 13))
	list.add("trace", traceparent.Of(t, p.Message.TraceParent).String())
}

func (p *turnPage) stopReason() string {
	t := p.Turn
	if t.StopReason == "" {
		if t.State.Terminal() {
			return "-"
		}
		return p.Paint(term.Dim, "the turn is open")
	}
	said := words.StopReason(t)
	if said == string(t.StopReason) {
		return said
	}
	return string(t.StopReason) + p.Paint(term.Dim, ": "+said)
}

// took returns the turn's duration, and how much of it models and tools took.
func (p *turnPage) took() string {
	var models, tools time.Duration
	for _, r := range p.Rounds {
		models += r.Latency
		for _, c := range r.Calls {
			tools += c.Duration
		}
	}
	end := p.Turn.EndedAt
	text := ""
	if end.IsZero() {
		text = term.Exact(max(p.Now.Sub(p.Turn.CreatedAt), 0)) + " so far"
	} else {
		text = term.Exact(p.Turn.Duration())
	}
	if end.IsZero() && models+tools == 0 {
		return text
	}
	spent := term.Exact(models) + " in models"
	if tools > 0 || !end.IsZero() {
		spent += ", " + term.Exact(tools) + " in tools"
	}
	return text + p.Paint(term.Dim, ": "+spent)
}

func tokens(u turnkeeper.Usage) string {
	text := fmt.Sprintf("%s in + %s out = %s", term.Thousands(u.InputTokens), term.Thousands(u.OutputTokens),
		term.Thousands(u.Total()))
	if u.CachedTokens > 0 {
		text += fmt.Sprintf(", %s cached", term.Thousands(u.CachedTokens))
	}
	if u.CacheWriteTokens > 0 {
		text += fmt.Sprintf(", %s newly cached", term.Thousands(u.CacheWriteTokens))
	}
	if u.ReasoningTokens > 0 {
		text += fmt.Sprintf(", %s for reasoning", term.Thousands(u.ReasoningTokens))
	}
	if u.Estimated {
		text += " (estimated)"
	}
	return text
}

func (p *turnPage) rounds() {
	p.heading("Rounds", "")
	if len(p.Rounds) == 0 {
		p.Line("  %s", p.Paint(term.Dim, "none: no model has answered"))
	}
	for _, r := range p.Rounds {
		p.failed(r.Number)
		p.round(r)
	}
	for open := len(p.Rounds) + 1; open <= p.lastAsked(); open++ {
		p.failed(open)
	}
}

// lastAsked returns the last round with a failed model call.
func (p *turnPage) lastAsked() (last int) {
	for _, f := range p.Failed {
		last = max(last, f.Round)
	}
	return last
}

// failed prints the failed model calls of a round, with the text they had streamed.
func (p *turnPage) failed(round int) {
	for _, f := range p.Failed {
		if f.Round != round {
			continue
		}
		about := []string{"failed attempt"}
		if f.Model != "" {
			about = append(about, f.Provider+"/"+f.Model)
		}
		about = append(about, term.Exact(f.Latency), f.Class, tokens(f.Usage))
		p.Line("  %s  %s", p.Paint(term.Bold, fmt.Sprint(f.Round)),
			p.Paint(term.Dim, term.OneLine(strings.Join(about, " · "), 0)))
		for _, line := range p.shorten(strings.TrimSpace(f.Error), 4, 2) {
			p.Line("     %s", line)
		}
		for _, line := range p.shorten(strings.TrimSpace(f.Text), 4, 4) {
			p.Line("     %s", p.Paint(term.Dim, "had streamed: "+line))
		}
	}
}

func (p *turnPage) round(r turnkeeper.Round) {
	about := []string{r.Provider + "/" + r.Model, term.Exact(r.Latency), term.Plural(r.Attempts, "attempt"),
		"finish " + term.OrDash(r.FinishReason), tokens(r.Usage)}
	if !r.Charged {
		about = append(about, "not charged")
	}
	p.Line("  %s  %s", p.Paint(term.Bold, fmt.Sprint(r.Number)),
		p.Paint(term.Dim, term.OneLine(strings.Join(about, " · "), 0)))
	p.request(r.Recipe)
	p.said(r)
	for _, c := range r.Calls {
		p.call(c)
	}
}

// said prints the text of a round, unless it is the reply.
func (p *turnPage) said(r turnkeeper.Round) {
	text := strings.TrimSpace(r.Text)
	if p.Reply != nil && text != "" && text == strings.TrimSpace(p.Reply.Body) {
		p.Line("     %s", p.Paint(term.Dim, "(the reply)"))
		return
	}
	for _, line := range p.shorten(text, 4, 4) {
		p.Line("     %s", line)
	}
}

func (p *turnPage) call(c turnkeeper.ToolCall) {
	facts := string(c.State)
	if c.Duration > 0 {
		facts += " · " + term.Exact(c.Duration)
	}
	facts += " · effect " + string(c.Effect)
	switch {
	case c.Awaited && c.Name == turnkeeper.ToolSpawnAgent:
		facts += " · sub-agent"
	case c.Awaited:
		facts += " · detached"
	case prompt.WentOn(c):
		facts += " · in the background"
	}
	if c.Starts > 1 {
		facts += fmt.Sprintf(" · started %d times", c.Starts)
	}
	arguments := " " + term.OneLine(c.AsRun(), p.argumentColumns(facts, c.Name))
	p.Line("     %s %s%s  %s", p.Paint(term.ToneOf(c.State), term.SignOf(c.State)),
		p.Paint(term.Bold, term.OneLine(c.Name, 64)), arguments, p.Paint(term.Dim, facts))
	if c.RunArgs != "" {
		p.Line("       %s", p.Paint(term.Dim, "planned: "+term.OneLine(c.Arguments, p.argumentColumns("planned:", ""))))
	}
	p.result(c)
}

// argumentColumns returns the width left for the arguments of a call; 0 means
// no limit.
func (p *turnPage) argumentColumns(facts, name string) int {
	if p.full {
		return 0
	}
	const around = 10 // indent, sign, gaps
	return max(p.Readable()-around-term.Width(facts)-term.Width(name), 16)
}

func (p *turnPage) result(c turnkeeper.ToolCall) {
	text, lines := c.Preview, 2
	if p.full {
		text, lines = c.Shown, 0
	}
	if p.Turn.MayHaveRun(c) {
		text = agentturn.ShownPerhaps
	}
	for _, line := range p.shorten(text, 7, lines) {
		p.Line("       %s", p.Paint(term.Dim, line))
	}
	if c.OutputID != "" {
		p.Line("       %s", p.Paint(term.Dim, "output "+term.OneLine(string(c.OutputID), 0)+p.size(c.OutputID)))
	}
	if c.Usage != (turnkeeper.Usage{}) {
		p.Line("       %s", p.Paint(term.Dim, "model calls made for it: "+tokens(c.Usage)))
	}
	if c.LateResult != "" {
		p.Line("       %s", p.Paint(term.Warned, "late result: ")+term.OneLine(c.LateResult, p.Readable()-22))
	}
}

func (p *turnPage) size(id turnkeeper.OutputID) string {
	for _, o := range p.Outputs {
		if o.ID == id {
			if !o.ExpiredAt.IsZero() {
				return ": expired"
			}
			return fmt.Sprintf(": %s bytes, %s, ~%s tokens, read %s", term.Thousands(o.SizeBytes),
				term.OrDash(o.MediaType), term.Thousands(o.Tokens), term.Plural(int(o.Retrieved), "time"))
		}
	}
	return ""
}

// shorten returns the first lines of a text, or all if lines is 0.
func (p *turnPage) shorten(text string, indent, lines int) []string {
	if text == "" {
		return nil
	}
	wrapped := term.Wrap(text, p.Readable()-indent-1)
	if lines == 0 || p.full || len(wrapped) <= lines {
		return wrapped
	}
	return append(wrapped[:lines-1], term.Cut(wrapped[lines-1]+" …", p.Readable()-indent-1))
}

// refused prints the writes that had to wait for the database.
func (p *turnPage) refused() {
	if len(p.Refused) == 0 {
		return
	}
	p.heading("Waits for the database", "")
	for _, r := range p.Refused {
		p.Line("  %s  %s", p.At(r.EndedAt.Add(-r.For)), words.Refused(r.For, r.SQLState))
	}
}

// awaited prints the open detached calls.
func (p *turnPage) awaited() {
	if len(p.Awaited) == 0 {
		return
	}
	p.heading("Waits for", "")
	for _, a := range p.Awaited {
		p.Line("  %s %s  %s", p.Paint(term.Active, "…"), p.Paint(term.Bold, term.OneLine(a.Name, 64)),
			p.Paint(term.Dim, a.Key.String()+" · since "+p.At(a.Since)))
		p.Line("     %s", p.Paint(term.Dim, term.OneLine(p.detachedState(a), 0)))
	}
}

// detachedState describes the state of an open detached call.
func (p *turnPage) detachedState(a operate.AwaitedCall) string {
	switch {
	case !a.ArrivedAt.IsZero():
		return "it completed " + p.At(a.ArrivedAt) + ", and the turn has not read the result yet"
	case a.Name == turnkeeper.ToolSpawnAgent:
		return "a sub-agent works on it: see below"
	case a.WorkerID == "" && a.Until.IsZero():
		return "it is detached"
	case a.WorkerID == "":
		return fmt.Sprintf("attempt %d waits for a worker, until %s", a.Attempt, p.Moment(a.Until))
	default:
		return fmt.Sprintf("attempt %d runs on worker %s since %s, until %s at the latest", a.Attempt, a.WorkerID,
			p.Moment(a.ClaimedAt), p.Moment(a.Until))
	}
}

func (p *turnPage) dispatches() {
	p.heading("Dispatches", "")
	if len(p.Dispatches) == 0 {
		none := "none"
		if !p.Turn.LeasesExpiredAt.IsZero() {
			none = "deleted by retention"
		}
		p.Line("  %s", p.Paint(term.Dim, none))
	}
	for i, d := range p.Dispatches {
		p.dispatch(i+1, d)
	}
}

func (p *turnPage) dispatch(n int, d turnkeeper.Dispatch) {
	worker := term.OrDash(term.OneLine(string(d.WorkerID), 0))
	end := p.Paint(term.Active, "open")
	if !d.EndedAt.IsZero() {
		end = d.Outcome + " after " + term.Exact(max(d.EndedAt.Sub(d.GrantedAt), 0))
	}
	if d.Outcome == "lost" || d.Outcome == "unclaimed" {
		end = p.Paint(term.Warned, end)
	}
	p.Line("  %s  granted %s, worker %s, %s", p.Paint(term.Bold, fmt.Sprint(n)), p.At(d.GrantedAt), worker, end)
	facts := fmt.Sprintf("token %d · grant %s · lease until %s", d.Token, d.GrantID, p.Moment(d.Until))
	if d.JobID != 0 {
		facts += fmt.Sprintf(" · job %d", d.JobID)
	}
	p.Line("     %s", p.Paint(term.Dim, facts))
}
