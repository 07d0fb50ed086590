package cli

import (
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A turnPage is a turn as people read it.
type turnPage struct {
	*screen
	clock
	operate.TurnView

	full bool // whole arguments and results instead of previews
}

func (p *turnPage) print() {
	p.title()
	p.exchange()
	p.outcome()
	p.rounds()
	p.awaited()
	p.tree()
	p.dispatches()
}

func (p *turnPage) title() {
	t := p.Turn
	p.line("%s  %s", p.in(bold, fmt.Sprintf("Turn %d", t.ID)), p.in(toneOf(t.State), signOf(t.State)+" "+string(t.State)))
	about := []string{
		"agent " + t.Agent, "conversation " + t.Conversation, "lane " + string(t.Lane),
		fmt.Sprintf("message %d", t.MessageID), fmt.Sprintf("attempt %d", t.Attempt), p.trigger(),
	}
	p.line("%s", p.in(dim, oneLine(strings.Join(about, " · "), 0)))
}

func (p *turnPage) trigger() string {
	m := p.Message
	if m.Trigger == turnkeeper.TriggerSchedule {
		return fmt.Sprintf("started by schedule %s for %s", m.Schedule, p.moment(m.Slot))
	}
	return "started by a message"
}

// exchange is what was asked and what was answered.
func (p *turnPage) exchange() {
	p.heading("Asked", p.at(p.Message.AcceptedAt))
	p.quote(p.Message.Body)
	if r := p.Reply; r != nil {
		p.heading("Answered", fmt.Sprintf("reply %d, %s", r.ID, p.at(r.CreatedAt)))
		if r.Body == "" {
			p.line("  %s", p.in(dim, silentReply))
		} else {
			p.quote(r.Body)
		}
	}
	if p.Turn.InnerDialogue != "" {
		p.heading("Said to itself", "")
		p.quote(p.Turn.InnerDialogue)
	}
}

func (p *turnPage) heading(name, beside string) {
	p.line("")
	p.line("%s", strings.TrimRight(p.in(bold, name)+"  "+p.in(dim, beside), " "))
}

func (p *turnPage) quote(text string) {
	for _, line := range wrap(text, p.readable()-4) {
		p.line("%s", strings.TrimRight("  "+p.in(dim, "│")+" "+line, " "))
	}
}

func (p *turnPage) outcome() {
	t := p.Turn
	p.heading("Outcome", "")
	list := pairs{screen: p.screen, indent: "  ", width: 14}
	list.add("stop reason", p.stopReason())
	switch {
	case t.Silence != nil:
		list.add("now", p.in(bad, oneLine(words.Silence(t.WorkerID, *t.Silence, "the turn", p.moment), 0)))
	case t.UnderWay != nil:
		list.add("now", oneLine(words.UnderWay(*t.UnderWay), 0))
	}
	list.add("took", p.took())
	list.add("rounds", fmt.Sprintf("%s, %d charged", plural(t.InferenceRounds, "model call"), t.ChargedRounds))
	list.add("tool calls", fmt.Sprintf("%d executed", t.ExecutedCalls))
	list.add("tokens", tokens(t.Usage))
	if t.ErrorClass != "" {
		list.add("error class", p.in(bad, oneLine(t.ErrorClass, 0)))
	}
	if t.Error != "" {
		list.add("error", wrap(t.Error, p.readable()-16)...)
	}
	if c := p.Cancel; c != nil {
		list.add("cancellation", oneLine(strings.TrimSpace("asked for "+p.at(c.AskedAt)+" "+c.Reason), 0))
	}
	if !t.State.Terminal() && !t.DueAt.IsZero() {
		list.add("not before", p.at(t.DueAt))
	}
	list.add("definition", cut(t.DefinitionHash, 13))
	list.add("trace", t.Trace(p.Message.TraceParent).String())
}

func (p *turnPage) stopReason() string {
	t := p.Turn
	if t.StopReason == "" {
		if t.State.Terminal() {
			return "-"
		}
		return p.in(dim, "it goes on")
	}
	said := words.StopReason(t)
	if said == string(t.StopReason) {
		return said
	}
	return string(t.StopReason) + p.in(dim, ": "+said)
}

// took is the turn's time, and where it went.
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
		text = exact(max(p.now.Sub(p.Turn.CreatedAt), 0)) + " so far"
	} else {
		text = exact(p.Turn.Duration())
	}
	if end.IsZero() && models+tools == 0 {
		return text
	}
	spent := exact(models) + " in models"
	if tools > 0 || !end.IsZero() {
		spent += ", " + exact(tools) + " in tools"
	}
	return text + p.in(dim, ": "+spent)
}

func tokens(u turnkeeper.Usage) string {
	text := fmt.Sprintf("%s in + %s out = %s", thousands(u.InputTokens), thousands(u.OutputTokens), thousands(u.Total()))
	if u.CachedTokens > 0 {
		text += fmt.Sprintf(", %s cached", thousands(u.CachedTokens))
	}
	if u.ReasoningTokens > 0 {
		text += fmt.Sprintf(", %s for reasoning", thousands(u.ReasoningTokens))
	}
	if u.Estimated {
		text += " (estimated)"
	}
	return text
}

func (p *turnPage) rounds() {
	p.heading("Rounds", "")
	if len(p.Rounds) == 0 {
		p.line("  %s", p.in(dim, "none: no model has answered"))
	}
	for _, r := range p.Rounds {
		p.failed(r.Number)
		p.round(r)
	}
	for open := len(p.Rounds) + 1; open <= p.lastAsked(); open++ {
		p.failed(open)
	}
}

// lastAsked is the last round that a model was asked for, answered or not.
func (p *turnPage) lastAsked() (last int) {
	for _, f := range p.Failed {
		last = max(last, f.Round)
	}
	return last
}

// failed are the model calls for a round that gave no answer, with what they had said.
func (p *turnPage) failed(round int) {
	for _, f := range p.Failed {
		if f.Round != round {
			continue
		}
		about := []string{"failed attempt"}
		if f.Model != "" {
			about = append(about, f.Provider+"/"+f.Model)
		}
		about = append(about, exact(f.Latency), f.Class, tokens(f.Usage))
		p.line("  %s  %s", p.in(bold, fmt.Sprint(f.Round)), p.in(dim, oneLine(strings.Join(about, " · "), 0)))
		for _, line := range p.shorten(strings.TrimSpace(f.Error), 4, 2) {
			p.line("     %s", line)
		}
		for _, line := range p.shorten(strings.TrimSpace(f.Text), 4, 4) {
			p.line("     %s", p.in(dim, "had said: "+line))
		}
	}
}

func (p *turnPage) round(r turnkeeper.Round) {
	about := []string{r.Provider + "/" + r.Model, exact(r.Latency), plural(r.Attempts, "attempt"), "finish " + orDash(r.FinishReason), tokens(r.Usage)}
	if !r.Charged {
		about = append(about, "not charged")
	}
	p.line("  %s  %s", p.in(bold, fmt.Sprint(r.Number)), p.in(dim, oneLine(strings.Join(about, " · "), 0)))
	p.request(r.Recipe)
	p.said(r)
	for _, c := range r.Calls {
		p.call(c)
	}
}

// said is the text of a round, unless it stands above as the reply.
func (p *turnPage) said(r turnkeeper.Round) {
	text := strings.TrimSpace(r.Text)
	if p.Reply != nil && text != "" && text == strings.TrimSpace(p.Reply.Body) {
		p.line("     %s", p.in(dim, "(the reply)"))
		return
	}
	for _, line := range p.shorten(text, 4, 4) {
		p.line("     %s", line)
	}
}

func (p *turnPage) call(c turnkeeper.ToolCall) {
	facts := string(c.State)
	if c.Duration > 0 {
		facts += " · " + exact(c.Duration)
	}
	facts += " · effect " + string(c.Effect)
	switch {
	case c.Elsewhere && c.Name == turnkeeper.ToolSpawnAgent:
		facts += " · sub-agent"
	case c.Elsewhere:
		facts += " · detached"
	case prompt.WentOn(c):
		facts += " · in the background"
	}
	if c.Starts > 1 {
		facts += fmt.Sprintf(" · started %d times", c.Starts)
	}
	arguments := " " + oneLine(c.Arguments, p.argumentColumns(facts, c.Name))
	p.line("     %s %s%s  %s", p.in(toneOf(c.State), signOf(c.State)), p.in(bold, oneLine(c.Name, 64)), arguments, p.in(dim, facts))
	p.result(c)
}

// argumentColumns is what a line leaves to the arguments of a call; all of
// them are shown when everything is.
func (p *turnPage) argumentColumns(facts, name string) int {
	if p.full {
		return 0
	}
	const around = 10 // indent, sign, gaps
	return max(p.readable()-around-columnsOf(facts)-columnsOf(name), 16)
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
		p.line("       %s", p.in(dim, line))
	}
	if c.OutputID != "" {
		p.line("       %s", p.in(dim, "output "+oneLine(string(c.OutputID), 0)+p.size(c.OutputID)))
	}
	if c.Usage != (turnkeeper.Usage{}) {
		p.line("       %s", p.in(dim, "model calls made for it: "+tokens(c.Usage)))
	}
	if c.LateResult != "" {
		p.line("       %s", p.in(warned, "came too late: ")+oneLine(c.LateResult, p.readable()-22))
	}
}

func (p *turnPage) size(id turnkeeper.OutputID) string {
	for _, o := range p.Outputs {
		if o.ID == id {
			return fmt.Sprintf(": %s bytes, %s, ~%s tokens, read %s", thousands(o.SizeBytes), orDash(o.MediaType), thousands(o.Tokens), plural(int(o.Retrieved), "time"))
		}
	}
	return ""
}

// shorten is the first lines of a text; lines 0: all.
func (p *turnPage) shorten(text string, indent, lines int) []string {
	if text == "" {
		return nil
	}
	wrapped := wrap(text, p.readable()-indent-1)
	if lines == 0 || p.full || len(wrapped) <= lines {
		return wrapped
	}
	return append(wrapped[:lines-1:lines-1], cut(wrapped[lines-1]+" …", p.readable()-indent-1))
}

// awaited are the calls that are open elsewhere, and where.
func (p *turnPage) awaited() {
	if len(p.Awaited) == 0 {
		return
	}
	p.heading("Waits for", "")
	for _, a := range p.Awaited {
		p.line("  %s %s  %s", p.in(active, "…"), p.in(bold, oneLine(a.Name, 64)), p.in(dim, a.Key.String()+" · since "+p.at(a.Since)))
		p.line("     %s", p.in(dim, oneLine(p.whereabouts(a), 0)))
	}
}

// whereabouts is where a call that is open elsewhere stands.
func (p *turnPage) whereabouts(a turnkeeper.AwaitedCall) string {
	switch {
	case !a.ArrivedAt.IsZero():
		return "its result has come " + p.at(a.ArrivedAt) + ", and the turn has not taken it in yet"
	case a.Name == turnkeeper.ToolSpawnAgent:
		return "a sub-agent works on it: see below"
	case a.WorkerID == "" && a.Until.IsZero():
		return "it runs elsewhere"
	case a.WorkerID == "":
		return fmt.Sprintf("attempt %d waits for a worker, until %s", a.Attempt, p.moment(a.Until))
	default:
		return fmt.Sprintf("attempt %d runs on worker %s since %s, until %s at the latest", a.Attempt, a.WorkerID, p.moment(a.ClaimedAt), p.moment(a.Until))
	}
}

func (p *turnPage) dispatches() {
	p.heading("Dispatches", "")
	if len(p.Dispatches) == 0 {
		p.line("  %s", p.in(dim, "none"))
	}
	for i, d := range p.Dispatches {
		p.dispatch(i+1, d)
	}
}

func (p *turnPage) dispatch(n int, d turnkeeper.Dispatch) {
	worker := orDash(oneLine(string(d.WorkerID), 0))
	end := p.in(active, "goes on")
	if !d.EndedAt.IsZero() {
		end = d.Outcome + " after " + exact(max(d.EndedAt.Sub(d.GrantedAt), 0))
	}
	if d.Outcome == "lost" || d.Outcome == "unclaimed" {
		end = p.in(warned, end)
	}
	p.line("  %s  granted %s, worker %s, %s", p.in(bold, fmt.Sprint(n)), p.at(d.GrantedAt), worker, end)
	p.line("     %s", p.in(dim, fmt.Sprintf("token %d · grant %s · lease until %s · job %d", d.Token, d.GrantID, p.moment(d.Until), d.JobID)))
}
