package turnctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// An explainer writes the explanation of a turn.
type explainer struct {
	operate.TurnView
	term.Clock
	bounds  *turnkeeper.Bounds   // of the agent, by this program's settings; nil: not known
	as, of  turnkeeper.MessageID // the message's retry, and the message that it retries; 0: none
	workers []presence.Heartbeat // of all worker processes
	levels  []operate.AgentLevel // of an open turn: those that are not normal, or are pinned
	expired []operate.Ask        // asks that nobody answered in time, newest first
	// differs compares the requests that begin an epoch with those before them, by round.
	differs map[int]comparison
}

func (x *explainer) explain() explanation {
	e := explanation{TurnID: x.Turn.ID, State: x.Turn.State}
	for _, t := range []topic{
		{"asked", x.asked()}, {"ran", x.ran()}, {"uncertain", x.uncertain()}, {"ended", x.ended()},
		{"held", x.heldBy()},
		{"cost", append(x.cost(), x.level()...)}, {"requests", x.requests()}, {"next", x.next()},
	} {
		if len(t.Sentences) > 0 {
			e.Topics = append(e.Topics, t)
		}
	}
	return e
}

func (x *explainer) asked() []string {
	t := x.Turn
	said := []string{askedBy(x.Message, t.Agent, x.Clock)}
	if t.Attempt > 1 {
		said = append(said, fmt.Sprintf("This is turn %d of that message.", t.Attempt))
	}
	if x.of != 0 {
		said = append(said, fmt.Sprintf("The message is a retry of message %d.", x.of))
	}
	return said
}

// level says at which survival level the agent of an open turn is, unless that is normal.
func (x *explainer) level() (said []string) {
	for _, a := range x.levels {
		if a.Agent != x.Turn.Agent {
			continue
		}
		said = append(said, words.Sentence(diagnosis.LevelText(x.Clock, a)))
		if happens := diagnosis.EffectText(a); happens != "" {
			said = append(said, "By its file, at this level: "+happens+".")
		}
	}
	return said
}

// askedBy describes a message: its sender, agent and body.
func askedBy(m waiting.Message, agent string, c term.Clock) string {
	body := "“" + term.OneLine(m.Body, 200) + "”"
	if m.Trigger == turnkeeper.TriggerSchedule {
		return fmt.Sprintf("Schedule %s of agent %s started it for %s: %s", m.Schedule, agent, c.Moment(m.Slot), body)
	}
	return fmt.Sprintf("Message %d asked agent %s, in conversation %s: %s", m.ID, agent,
		term.OneLine(words.Conversation(m.User, m.Conversation), 64), body)
}

func (x *explainer) ran() []string {
	t := x.Turn
	if len(x.Rounds) == 0 {
		return append([]string{"No model answered, and no tool ran."}, x.failedAttempts()...)
	}
	var models []string
	var latency time.Duration
	again := 0
	for _, r := range x.Rounds {
		if name := r.Provider + "/" + r.Model; !slices.Contains(models, name) {
			models = append(models, name)
		}
		latency += r.Latency
		again += max(r.Attempts-1, 0)
	}
	together := ""
	if t.InferenceRounds > 1 {
		together = " together"
	}
	said := []string{fmt.Sprintf("It made %s (%d charged) of %s, which took %s%s.",
		term.Plural(t.InferenceRounds, "model call"), t.ChargedRounds, strings.Join(models, ", "),
		term.Exact(latency), together)}
	if again > 0 {
		said = append(said, fmt.Sprintf("Model calls were repeated %s before an answer.", term.Plural(again, "time")))
	}
	return append(append(said, x.failedAttempts()...), x.tools()...)
}

// shownAttempts is the maximum number of failed model calls listed.
const shownAttempts = 5

// failedAttempts lists the model calls that gave no answer, in order.
func (x *explainer) failedAttempts() (said []string) {
	if len(x.Failed) == 0 {
		return nil
	}
	said = append(said, term.Plural(len(x.Failed), "model call")+" gave no answer:")
	for i, f := range x.Failed {
		if i == shownAttempts {
			said = append(said, fmt.Sprintf("- %d more: turnctl show %d", len(x.Failed)-i, x.Turn.ID))
			break
		}
		line := fmt.Sprintf("- for round %d", f.Round)
		if f.Model != "" {
			line += ", " + term.OneLine(f.Provider+"/"+f.Model, 100)
		}
		if f.Latency > 0 {
			line += ", after " + term.Exact(f.Latency)
		}
		said = append(said, line+", "+f.Class+": "+term.OneLine(f.Error, 300))
	}
	return said
}

// tools lists the calls' states by tool.
func (x *explainer) tools() []string {
	type tally struct {
		states []turnkeeper.CallState
		counts map[turnkeeper.CallState]int
		took   time.Duration
	}
	var names []string
	byName := map[string]*tally{}
	for _, call := range x.calls() {
		of := byName[call.Name]
		if of == nil {
			of = &tally{counts: map[turnkeeper.CallState]int{}}
			byName[call.Name] = of
			names = append(names, call.Name)
		}
		if of.counts[call.State] == 0 {
			of.states = append(of.states, call.State)
		}
		of.counts[call.State]++
		of.took += call.Duration
	}
	if len(names) == 0 {
		return []string{"It called no tools."}
	}
	said := []string{fmt.Sprintf("It asked for %s, of which %d ran:", term.Plural(len(x.calls()), "tool call"),
		x.Turn.ExecutedCalls)}
	for _, name := range names {
		of := byName[name]
		parts := make([]string, len(of.states))
		for i, state := range of.states {
			parts[i] = fmt.Sprintf("%d %s", of.counts[state], state)
		}
		line := fmt.Sprintf("- %s: %s", term.OneLine(name, 64), strings.Join(parts, ", "))
		if of.took > 0 {
			line += ", in " + term.Exact(of.took)
		}
		said = append(said, line)
	}
	return said
}

func (x *explainer) calls() (all []turnkeeper.ToolCall) {
	for _, r := range x.Rounds {
		all = append(all, r.Calls...)
	}
	return all
}

// uncertain lists the calls that may or may not have had their effect.
func (x *explainer) uncertain() (said []string) {
	for _, c := range x.calls() {
		what := fmt.Sprintf("Call %s of %s (effect %s)", c.Key, term.OneLine(c.Name, 64), c.Effect)
		switch {
		case c.State == turnkeeper.CallUnknown:
			said = append(said, what+" has an unknown outcome: it was started, and it may or may not have happened.")
		case c.State == turnkeeper.CallCancelled && c.Starts > 0 && c.Effect != turnkeeper.EffectNone:
			said = append(said, what+" was interrupted after its start: it may or may not have happened.")
		case x.Turn.MayHaveRun(c):
			said = append(said,
				what+
					" may have been running when its worker was lost: the start of a tool that only reads is not recorded. What it did is unknown.")
		// the start of a read is not recorded
		case c.State == turnkeeper.CallCancelled && c.Starts == 0 && c.Duration == 0:
			said = append(said, what+" was planned but not run.")
		}
		if c.LateResult != "" {
			said = append(said, "Its result came too late and changed nothing: "+term.OneLine(c.LateResult, 200))
		}
	}
	return said
}

// acted reports whether a call may have had an effect.
func (x *explainer) acted() bool { return slices.ContainsFunc(x.calls(), x.Turn.MayHaveActed) }

func (x *explainer) ended() []string {
	t := x.Turn
	var said []string
	if !t.State.Terminal() {
		said = append(append(said, x.status()), x.blockers()...)
	} else {
		said = append(said, fmt.Sprintf("It %s %s after it began: %s.", stateWords[t.State],
			term.Exact(t.Duration()), x.reason()))
	}
	for _, r := range x.Refused {
		said = append(said, fmt.Sprintf("Until %s %s.", x.Moment(r.EndedAt), words.Refused(r.For, r.SQLState)))
	}
	for _, a := range x.expired {
		said = append(said, fmt.Sprintf("Nobody answered ask %d (%s %s) before it expired at %s: turnctl asks show %d.",
			a.ID, a.Kind, term.OneLine(a.Tool, 64), x.Moment(a.ClosedAt), a.ID))
	}
	if t.Error != "" {
		said = append(said, x.lastError())
	}
	if x.End != nil {
		said = append(said, x.requestedEnd(*x.End)+".")
	}
	switch {
	case x.Reply != nil:
		said = append(said, fmt.Sprintf("Reply %d, %s, was written.", x.Reply.ID, x.Reply.Outcome))
	case t.State == turnkeeper.TurnFailed && x.Message.State == turnkeeper.MessageWaiting:
		said = append(said, "The message stays in the inbox and is retried by itself.")
	case t.State == turnkeeper.TurnSucceeded && t.Trigger == turnkeeper.TriggerSchedule:
		said = append(said, "It answered that there is nothing to report (quiet_reply), so no reply was written.")
	case t.State.Terminal() && t.Trigger == turnkeeper.TriggerSchedule:
		said = append(said, "A turn of a schedule writes a reply only if the model answers.")
	}
	return said
}

// requestedEnd says who wanted the turn to end, when and why.
func (x *explainer) requestedEnd(r operate.RequestedEnd) string {
	t, what, vain := x.Turn, "Its cancellation was requested", x.Turn.State != turnkeeper.TurnCancelled
	if r.How == turnlog.EndFinish {
		what, vain = "It was asked to finish with what it has", t.StopReason == turnkeeper.StopNone
	}
	asked := fmt.Sprintf("%s at %s", what, x.Moment(r.AskedAt))
	if r.Turn != t.ID {
		asked += fmt.Sprintf(", with turn %d", r.Turn)
	}
	if r.Reason != "" {
		asked += ": " + words.Clause(term.OneLine(r.Reason, 200))
	}
	if t.State.Terminal() && vain {
		asked += "; it ended by itself before that took effect"
	}
	return asked
}

// lastError returns the error of an ended turn, or why an open one was queued again.
func (x *explainer) lastError() string {
	what := "The error"
	switch {
	case x.Turn.State == turnkeeper.TurnQueued:
		what = "It was queued again"
	case !x.Turn.State.Terminal():
		what = "Before that it was queued again"
	}
	if x.Turn.ErrorClass != "" {
		what += " (" + x.Turn.ErrorClass + ")"
	}
	return what + ": " + term.OneLine(x.Turn.Error, 500)
}

// stateWords says how a turn ended, by its state.
var stateWords = map[turnkeeper.TurnState]string{
	turnkeeper.TurnSucceeded: "succeeded", turnkeeper.TurnDegraded: "ended degraded", turnkeeper.TurnFailed: "failed",
	turnkeeper.TurnCancelled: "was cancelled",
}

// status describes the state of an open turn.
func (x *explainer) status() string {
	t := x.Turn
	switch {
	case t.State == turnkeeper.TurnWaiting:
		return fmt.Sprintf("It waits for %s and holds no lease or slot meanwhile.", x.awaits()) + x.subAgents()
	case t.State == turnkeeper.TurnQueued && !t.DueAt.IsZero():
		return fmt.Sprintf("It waits for %s: it is queued until %s at the earliest.", x.deferredFor(),
			x.Moment(t.DueAt))
	case t.State == turnkeeper.TurnQueued:
		return "It is queued."
	case t.WorkerID == "":
		return fmt.Sprintf("It is granted, but no worker has started it yet; its lease ends at %s.",
			x.Moment(t.LeaseUntil))
	default:
		return fmt.Sprintf("It runs on worker %s; its lease ends at %s.", term.OneLine(string(t.WorkerID), 100),
			x.Moment(t.LeaseUntil)) + x.doing()
	}
}

// deferredFor says what a queued turn waits for.
func (x *explainer) deferredFor() string {
	for _, w := range x.Message.Waits {
		if row, _ := waiting.RowOf(w.Reason); row.Parked != "" && w.Turn == x.Turn.ID {
			return row.Parked
		}
	}
	return "its next try"
}

// asks returns the number of open asks of a waiting turn.
func (x *explainer) asks() int {
	for _, w := range x.Message.Waits {
		if w.Reason == waiting.Person {
			return w.Count
		}
	}
	return 0
}

// awaits lists what a waiting turn waits for.
func (x *explainer) awaits() string {
	var all []string
	for _, w := range x.Message.Waits {
		if row, _ := waiting.RowOf(w.Reason); row.Parked != "" {
			all = append(all, w.Awaited())
		}
	}
	if len(all) == 0 { // its wait is over
		return waiting.For(waiting.ParkedFor(false, true, false))
	}
	return words.Enumerate(slices.Compact(all))
}

// blockers lists what blocks an open turn, other than what it waits for itself.
func (x *explainer) blockers() (said []string) {
	for _, w := range x.Message.Waits {
		if w.Turn != x.Turn.ID {
			text := words.Sentence(w.Long(x.Moment))
			said = append(said, strings.ToUpper(text[:1])+text[1:])
		}
	}
	return said
}

// doing says what a running turn does, or that its worker is silent.
func (x *explainer) doing() string {
	switch {
	case x.Turn.Silence != nil:
		said := words.Silence(x.Turn.WorkerID, *x.Turn.Silence, "the turn", x.Moment)
		return " " + strings.ToUpper(said[:1]) + said[1:] + " and continues from its journal."
	case x.Turn.UnderWay != nil:
		return " Now: " + words.UnderWay(*x.Turn.UnderWay) + "." + x.refused()
	default:
		return ""
	}
}

// refused says why the database refuses the turn's write, and what to do.
func (x *explainer) refused() string {
	u := x.Turn.UnderWay
	if u.RefusedFor == 0 {
		return ""
	}
	return fmt.Sprintf(" The database says: %s. To do: %s.", term.OneLine(u.RefusedWith, 300),
		words.WriteAdvice(u.RefusedCode))
}

// workerAlive reports whether a worker could continue an open turn.
func (x *explainer) workerAlive() bool {
	return slices.ContainsFunc(x.workers, func(w presence.Heartbeat) bool { return w.State() == presence.Alive })
}

// subAgents lists the sub-agents that the turn waits for.
func (x *explainer) subAgents() string {
	if x.Tree == nil {
		return ""
	}
	var names []string
	for _, a := range x.Tree.SubAgents {
		if a.Parent == x.Turn.ID && a.EndedAt.IsZero() && !a.Dropped {
			names = append(names, a.Agent)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" The sub-agent %s works for it.", names[0])
	default:
		return fmt.Sprintf(" The sub-agents %s work for it.", strings.Join(names, ", "))
	}
}

// reason explains the stop reason, with the limit.
func (x *explainer) reason() string {
	t := x.Turn
	bound := func(text string, of func(turnkeeper.Bounds) string) string {
		if x.bounds == nil {
			return text
		}
		return text + ", which is " + of(*x.bounds) + " by the agent's file and this machine's settings"
	}
	switch t.StopReason {
	case turnkeeper.StopMaxRounds:
		return bound("it reached the limit on model calls (max_rounds)", func(b turnkeeper.Bounds) string {
			return fmt.Sprint(b.MaxRounds)
		})
	case turnkeeper.StopMaxDuration:
		return bound("it reached its time limit (max_duration)", func(b turnkeeper.Bounds) string {
			return b.MaxDuration.String()
		})
	case turnkeeper.StopMaxToolCalls:
		return bound("it reached the limit on tool calls (max_tool_calls)", func(b turnkeeper.Bounds) string {
			return fmt.Sprint(b.MaxToolCalls)
		})
	case turnkeeper.StopWorkerLost:
		if t.ErrorClass == string(turnkeeper.StopWorkerLost) { // the scheduler ended it
			return words.StopReason(t) + ", and the message was answered without another run"
		}
		return words.StopReason(t)
	case turnkeeper.StopInferenceError:
		switch {
		case t.State != turnkeeper.TurnDegraded:
			return "a model call failed before any tool had run"
		case t.ExecutedCalls > 0:
			return "a model call failed after tools had run, so the message could not be retried"
		default:
			return "the model gave no answer that could be used, and another run would end likewise"
		}
	case turnkeeper.StopCancelled:
		return "its cancellation was requested"
	case turnkeeper.StopFinished:
		if t.State == turnkeeper.TurnDegraded {
			return words.StopReason(t) + ", and the model gave no answer"
		}
		return words.StopReason(t)
	default:
		return words.StopReason(t)
	}
}

// dispatchWords says how a dispatch ended, by its outcome.
var dispatchWords = map[string]string{
	"finished": "ended it", "lost": "was lost", "handed_back": "handed it back", "deferred": "deferred it",
	"waiting": "left it waiting",
}

func (x *explainer) heldBy() (said []string) {
	if len(x.Dispatches) == 0 {
		return []string{"It was never granted."}
	}
	for i, d := range x.Dispatches {
		said = append(said, fmt.Sprintf("%d. It was granted at %s %s.", i+1, x.Moment(d.GrantedAt), x.holder(d)))
	}
	return said
}

// holder says which worker had a grant, and how it ended.
func (x *explainer) holder(d turnkeeper.Dispatch) string {
	took := term.Exact(max(d.EndedAt.Sub(d.GrantedAt), 0))
	who := "to worker " + term.OneLine(string(d.WorkerID), 100)
	if d.WorkerID == "" {
		who = "to a worker that wrote nothing"
	}
	switch {
	case d.EndedAt.IsZero() && d.WorkerID == "":
		return fmt.Sprintf("(token %d); no worker has started it yet", d.Token)
	case d.EndedAt.IsZero():
		return fmt.Sprintf("%s (token %d), which holds it", who, d.Token)
	case d.Outcome == "unclaimed":
		return fmt.Sprintf("(token %d); no worker started it in %s", d.Token, took)
	default:
		return fmt.Sprintf("%s (token %d), which %s after %s", who, d.Token, dispatchWords[d.Outcome], took)
	}
}

func (x *explainer) cost() []string {
	if x.Turn.Usage == (turnkeeper.Usage{}) {
		return []string{"It used no tokens."}
	}
	text := "It used " + tokens(x.Turn.Usage)
	var extractions turnkeeper.Usage
	for _, c := range x.calls() {
		extractions = extractions.Add(c.Usage)
	}
	if extractions.Total() > 0 {
		text += fmt.Sprintf(" (including %s for searches in stored results)", term.Thousands(extractions.Total()))
	}
	return []string{text + " tokens."}
}

// next says what an operator can do.
func (x *explainer) next() (said []string) {
	t := x.Turn
	advise := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if slices.ContainsFunc(x.calls(), func(c turnkeeper.ToolCall) bool { return c.State == turnkeeper.CallUnknown }) {
		advise("Before you repeat anything, check whether the calls of unknown outcome had their effect.")
	}
	if x.asks() > 0 {
		advise("See what it asks: turnctl asks --turn %d.", t.ID)
	}
	for _, w := range x.Message.Waits {
		if w.Reason == waiting.SetAside {
			advise("%s", w.Advice(t.MessageID, shell.Command("worker")))
		}
	}
	switch {
	case !t.State.Terminal() && !x.workerAlive():
		advise(`No worker is running: start one (%s) to continue the turn. Stop it: turnctl cancel %d.`,
			shell.Command("worker"), t.ID)
	case !t.State.Terminal() && x.End != nil:
		advise(`Watch it: turnctl events %d --follow. Stop it: turnctl cancel %d.`, t.ID, t.ID)
	case !t.State.Terminal():
		advise(
			`Watch it: turnctl events %d --follow. Let it answer with what it has: turnctl finish %d. Stop it: turnctl cancel %d.`, t.ID, t.ID, t.ID)
	default:
		advise("%s", x.again())
	}
	if setting := settingOf[t.StopReason]; setting != "" {
		advise("If that limit is too low, set %s in the agent's file.", setting)
	}
	if t.StopReason == turnkeeper.StopInferenceError && inference.Class(t.ErrorClass).OfService() {
		advise(`Check the provider: turnctl doctor.`)
	}
	return said
}

// again says what to do about the message of an ended turn.
func (x *explainer) again() string {
	t := x.Turn
	switch {
	case x.as != 0:
		return fmt.Sprintf("The message was retried as message %d.", x.as)
	case x.Message.TurnID > t.ID:
		return fmt.Sprintf("The message was retried in turn %d: turnctl explain %d.", x.Message.TurnID,
			x.Message.TurnID)
	case t.StopReason == turnkeeper.StopWorkerLost && t.Losses > 1:
		return fmt.Sprintf(
			"Find out what killed the workers: first check the calls above that may have run. Fix the cause, then retry the message: turnctl retry %d --anyway.", t.MessageID)
	case t.State == turnkeeper.TurnFailed && len(x.Message.WaitsFor) > 0:
		return fmt.Sprintf(
			"Fix the cause. The message waits for %s, currently down, and continues with its first answer: turnctl doctor says what to do. To retry it at once: turnctl retry %d.",
			strings.Join(x.Message.WaitsFor, ", "), t.MessageID)
	case t.State == turnkeeper.TurnFailed && x.Message.State == turnkeeper.MessageWaiting:
		return fmt.Sprintf("Fix the cause. To retry the message at once: turnctl retry %d.", t.MessageID)
	case t.State == turnkeeper.TurnFailed:
		return fmt.Sprintf("Fix the cause, then retry the message: turnctl retry %d.", t.MessageID)
	case t.State == turnkeeper.TurnSucceeded:
		return fmt.Sprintf("Nothing: it succeeded. Details: turnctl show %d.", t.ID)
	case t.State == turnkeeper.TurnCancelled && t.Dispatches == 0: // cancelled before any grant
		return fmt.Sprintf("Retry the message: turnctl retry %d.", t.MessageID)
	case !x.acted():
		return fmt.Sprintf("No tool with an effect was started. Retry the message: turnctl retry %d --anyway.",
			t.MessageID)
	default:
		return fmt.Sprintf("If its effects may safely happen twice, retry the message: turnctl retry %d --anyway.",
			t.MessageID)
	}
}

// settingOf maps a stop reason to the setting of its limit.
var settingOf = map[turnkeeper.StopReason]string{
	turnkeeper.StopMaxRounds: "max_rounds", turnkeeper.StopMaxDuration: "max_duration",
	turnkeeper.StopMaxToolCalls: "max_tool_calls",
	turnkeeper.StopBudget:       "budget",
}
