package agentturn_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/policy"
)

// A labelSet is a set of labels.
type labelSet map[policy.Label]bool

func (s labelSet) with(others ...labelSet) labelSet {
	all := labelSet{}
	for _, o := range append(others, s) {
		maps.Copy(all, o)
	}
	return all
}

func (s labelSet) String() string {
	var words []string
	for l := range s {
		words = append(words, string(l))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// A fate is the expected end of a call, without what depends on how the turn runs.
type fate struct {
	Call   string // the wire id
	Tool   string
	State  turnkeeper.CallState
	Asked  string // kinds and answers of the asks about it
	Ran    string // arguments that the tool received; "a text" stands for that of a handle
	Labels string // of the result
}

// An outcome is what becomes of a turn.
type outcome struct {
	Fates  []fate
	Labels string // of the turn
	State  turnkeeper.TurnState
	Stop   turnkeeper.StopReason
	Reply  string // "summary" stands for that of the calls
}

// An oracle says what becomes of a play, by the promises alone: it looks at no code of turns.
type oracle struct {
	play
	fates   []fate
	results map[int]labelSet // of the results of calls
	states  map[int]turnkeeper.CallState
	knew    map[int]labelSet // of the calls themselves
	rounds  []labelSet       // of the turn, before each of its rounds
}

// foretell returns the oracle of a play after it has seen all of it.
func foretell(p play) *oracle {
	o := &oracle{play: p, results: map[int]labelSet{}, states: map[int]turnkeeper.CallState{}, knew: map[int]labelSet{}}
	known := labelSet{}
	if p.inbox {
		known[policy.Untrusted] = true
	}
	for _, lines := range p.rounds {
		o.rounds = append(o.rounds, known)
		after := known
		for _, l := range lines {
			o.see(l, known)
			after = after.with(o.results[l.n])
		}
		known = after
	}
	o.rounds = append(o.rounds, known)
	return o
}

// labelsAfter returns the labels of the turn before round i, and of the results of the round's first n calls.
func labelsAfter(p play, i, n int) labelSet {
	o := foretell(p)
	known := o.rounds[i]
	for _, l := range p.rounds[i][:n] {
		known = known.with(o.results[l.n])
	}
	return known
}

// see decides about a line that the model wrote when it knew content with labels.
func (o *oracle) see(l line, known labelSet) {
	at := len(o.fates)
	f := fate{Call: wireOf(l.n), Tool: l.tool}
	o.fates = append(o.fates, f) // before those of its sub-agent
	marks := o.marks(l, known)
	o.knew[l.n] = marks
	f.State, f.Asked, f.Ran = o.decide(l, marks)
	labels := labelSet{}
	switch f.State {
	case "": // it runs
		f.State = turnkeeper.CallSucceeded
		labels = marks.with(o.effectOf(l, &f, marks))
	case turnkeeper.CallSucceeded:
		labels = marks
	}
	if p := propOf(l.tool); p.ends == "doubts" && f.State == turnkeeper.CallSucceeded {
		labels = labelSet{} // a person said that it happened; its result is lost
	}
	f.Labels = labels.String()
	o.fates[at], o.results[l.n], o.states[l.n] = f, labels, f.State
}

// marks returns the labels of a call: any untrusted content may have led to it; private content is in what the model
// wrote.
func (o *oracle) marks(l line, known labelSet) labelSet {
	marks := labelSet{}
	if known[policy.Untrusted] {
		marks[policy.Untrusted] = true
	}
	if known[policy.Private] && (l.text == textWords || l.to != "") {
		marks[policy.Private] = true
	}
	if l.text == textHandle {
		marks = marks.with(o.results[l.of])
	}
	return marks
}

// decide returns whether a call runs: then its state is empty.
func (o *oracle) decide(l line, marks labelSet) (state turnkeeper.CallState, asked, ran string) {
	if l.tool == turnkeeper.ToolAskPerson {
		switch l.answer {
		case answerNo:
			return turnkeeper.CallDenied, "question denied", ""
		case answerLate:
			return turnkeeper.CallDenied, "question expired", ""
		}
		return turnkeeper.CallSucceeded, "question answered", ""
	}
	of, _ := o.find(l.of)
	if l.text == textHandle && (o.states[l.of] != turnkeeper.CallSucceeded || propOf(of.tool).gives == "binary") {
		return turnkeeper.CallDenied, "", ""
	}
	args := ruleArguments{}
	switch {
	case l.tool == turnkeeper.ToolSpawnAgent:
	case l.text == textWords:
		args = ruleArguments{l.n, "words"}
	case l.text == textHandle:
		args = ruleArguments{0, "x of c1"}
	}
	switch o.verdict(l, args, l.to, marks) {
	case policy.Deny:
		return turnkeeper.CallDenied, "", ""
	case policy.Ask:
	default:
		return "", "", o.ranWith(l)
	}
	switch l.answer {
	case answerNo:
		return turnkeeper.CallDenied, "approve denied", ""
	case answerLate:
		return turnkeeper.CallDenied, "approve expired", ""
	case answerEdit:
		if l.tool != turnkeeper.ToolSpawnAgent {
			args = ruleArguments{N: 1000 + l.n}
		}
		if o.verdict(l, args, "eve@example.com", marks) == policy.Deny {
			return turnkeeper.CallDenied, "approve approved", ""
		}
		return "", "approve approved", o.ranEdited(l)
	}
	return "", "approve approved", o.ranWith(l)
}

// verdict returns the strictest verdict of the rule and of the labels.
func (o *oracle) verdict(l line, args ruleArguments, to string, marks labelSet) policy.Verdict {
	d := policy.Decision{Verdict: policy.Allow}
	switch rule := o.rules[l.tool]; rule {
	case "", policy.Never:
	case policy.Always:
		d.Verdict = policy.Ask
	default:
		d = policy.Strictest(d, decideBy(rule, args, marks))
	}
	sinks := propOf(l.tool).flow.Sinks
	changes := marks[policy.Untrusted] && slices.Contains(sinks, policy.Changes)
	allowed := strings.HasSuffix(to, "@example.com") && len(propOf(l.tool).flow.Destinations) > 0
	sends := marks[policy.Private] && slices.Contains(sinks, policy.Sends) && !allowed
	if changes || sends {
		d = policy.Strictest(d, policy.Decision{Verdict: policy.Ask})
	}
	return d.Verdict
}

func (o *oracle) ranWith(l line) string {
	if l.tool == turnkeeper.ToolSpawnAgent {
		return ""
	}
	if l.text != textHandle {
		return argumentsOf(l, false)
	}
	return strings.Replace(argumentsOf(l, false), `"output:`+wireOf(l.of)+`"`, `"a text"`, 1)
}

func (o *oracle) ranEdited(l line) string {
	if l.tool == turnkeeper.ToolSpawnAgent {
		return ""
	}
	return fmt.Sprintf(`{"n":%d,"to":"eve@example.com"}`, 1000+l.n)
}

// effectOf returns the labels that a run brings.
func (o *oracle) effectOf(l line, f *fate, marks labelSet) labelSet {
	if l.tool == turnkeeper.ToolSpawnAgent {
		known := marks
		for _, call := range l.child {
			o.see(call, known)
			known = known.with(o.results[call.n])
		}
		return known
	}
	p, labels := propOf(l.tool), labelSet{}
	for _, label := range slices.Concat(p.flow.Labels, p.brings) {
		labels[label] = true
	}
	switch {
	case p.ends == "fails":
		f.State = turnkeeper.CallFailed
	case p.ends == "doubts" && o.settles:
		f.Asked = strings.TrimSpace(f.Asked + ", settle answered")
		f.Asked = strings.TrimPrefix(f.Asked, ", ")
	case p.ends == "doubts":
		f.State = turnkeeper.CallUnknown
	case p.asks:
		end := map[string]string{answerNo: "denied", answerLate: "expired"}[l.answer]
		if end != "" {
			f.State = turnkeeper.CallFailed
		}
		f.Asked = strings.TrimPrefix(f.Asked+", input "+cmp.Or(end, "answered"), ", ")
	}
	return labels
}

// outcome returns what becomes of the turn.
func (o *oracle) outcome() outcome {
	known := o.rounds[len(o.rounds)-1]
	out := outcome{Fates: o.fates, Labels: known.String(), State: turnkeeper.TurnSucceeded, Stop: turnkeeper.StopNone,
		Reply: "All is done."}
	for _, l := range o.lines() {
		if o.states[l.n] == turnkeeper.CallUnknown {
			out.State, out.Stop = turnkeeper.TurnDegraded, turnkeeper.StopWorkerLost
			out.Reply += "\n- " + l.tool + ": unknown: it may or may not have happened"
		}
	}
	out.Reply = strings.Replace(out.Reply, "\n", "\n\n", 1)
	if o.insists {
		out.State, out.Stop, out.Reply = turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds, "summary"
		out.Fates = append(out.Fates, fate{Call: "c999", Tool: "look", State: turnkeeper.CallDenied})
	}
	if known[policy.Private] && (o.sink == policy.ReplyWithhold || o.sink == policy.ReplyAsk && !o.sent) {
		out.State, out.Stop, out.Reply = turnkeeper.TurnDegraded, turnkeeper.StopWithheld,
			"The answer was withheld, because it may hold private content."
	}
	return out
}
