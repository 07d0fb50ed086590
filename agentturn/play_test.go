package agentturn_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/policy"
)

// A play is the script of a random turn: what its model, its sub-agents and its people do. The outcome depends on it
// alone, not on how the turn runs.
type play struct {
	rounds  [][]line          // the calls of each answer of the model
	rules   map[string]string // of calls, by tool: see ruleOf
	inbox   bool              // messages are untrusted
	sink    string            // reply_sink
	sent    bool              // a person allows a reply that the sink asks about
	settles bool              // a person says what became of calls of unknown outcome
	insists bool              // the model asks for a call in the round that was announced as the last one
}

// A line is one call of a play.
type line struct {
	n      int // names the call
	tool   string
	text   string // content in the arguments: one of texts
	of     int    // textHandle: the line whose result is meant
	to     string // destination; empty: none
	child  []line // of spawn_agent: the calls of the sub-agent, one in each of its rounds
	answer string // of a person who is asked about the call: one of answers
}

// The contents of arguments, and what people do.
const (
	textNone   = "none"   // only what its schema lists
	textWords  = "words"  // the model wrote it
	textHandle = "handle" // of an earlier result

	answerYes, answerNo, answerEdit, answerLate = "yes", "no", "edit", "late"
)

// A prop is a tool of plays.
type prop struct {
	name   string
	effect turnkeeper.Effect
	flow   policy.Flow
	brings []policy.Label // labels of the result itself
	ends   string         // fails, or doubts whether it happened; empty: succeeds
	within bool           // runs in the transaction of its result
	gives  string         // kind of the result: binary, attached or long; empty: a short text
	asks   bool           // asks a person for input, once
	muses  bool           // asks a model
}

// props are the tools of plays.
var props = []prop{
	{name: "look", effect: turnkeeper.EffectNone},
	{name: "secret", effect: turnkeeper.EffectNone, flow: policy.Flow{Labels: []policy.Label{policy.Private}}},
	{name: "page", effect: turnkeeper.EffectNone, flow: policy.Flow{Labels: []policy.Label{policy.Untrusted}}},
	{name: "mixed", effect: turnkeeper.EffectNone, brings: []policy.Label{policy.Private, policy.Untrusted}},
	{name: "broken", effect: turnkeeper.EffectNone, flow: policy.Flow{Labels: []policy.Label{policy.Untrusted}},
		ends: "fails"},
	{name: "put", effect: turnkeeper.EffectKeyed},
	{name: "pay", effect: turnkeeper.EffectOnce, flow: policy.Flow{Sinks: []policy.Sink{policy.Changes}}},
	{name: "send", effect: turnkeeper.EffectOnce, flow: sends},
	{name: "fetch", effect: turnkeeper.EffectNone,
		flow: sends.Or(policy.Flow{Labels: []policy.Label{policy.Untrusted}})},
	{name: "bounce", effect: turnkeeper.EffectOnce, flow: sends, ends: "fails"},
	{name: "doubt", effect: turnkeeper.EffectOnce, ends: "doubts"},
	{name: "note", effect: turnkeeper.EffectOnce, within: true},
	{name: "post", effect: turnkeeper.EffectOnce, flow: policy.Flow{Sinks: []policy.Sink{policy.Changes, policy.Sends}},
		within: true},
	{name: "photo", effect: turnkeeper.EffectNone, gives: "binary"},
	{name: "paper", effect: turnkeeper.EffectNone, flow: policy.Flow{Labels: []policy.Label{policy.Untrusted}},
		gives: "attached"},
	{name: "report", effect: turnkeeper.EffectKeyed, brings: []policy.Label{policy.Private}, gives: "long"},
	{name: "book", effect: turnkeeper.EffectKeyed, asks: true},
	{name: "reserve", effect: turnkeeper.EffectOnce, flow: policy.Flow{Sinks: []policy.Sink{policy.Changes}},
		asks: true, muses: true},
	{name: "muse", effect: turnkeeper.EffectNone, muses: true},
}

var sends = policy.Flow{Sinks: []policy.Sink{policy.Sends}, Destination: []string{"to"},
	Destinations: []string{"*@example.com"}}

func propOf(name string) prop {
	i := slices.IndexFunc(props, func(p prop) bool { return p.name == name })
	if i < 0 { // one that the turn runs itself
		return prop{name: name, effect: map[string]turnkeeper.Effect{
			turnkeeper.ToolAskPerson: turnkeeper.EffectNone}[name]}
	}
	return props[i]
}

var ruleTexts = []string{
	policy.Always, policy.Never, "ask n > 5", "deny n > 8", "deny n > 1004", "ask private", "deny untrusted",
	"ask text", "deny text",
	"ask n > 3 | deny private",
}

// newPlay returns the play of a seed.
func newPlay(seed uint64) play {
	r := rand.New(rand.NewPCG(seed, 1))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	p := play{
		rules: map[string]string{}, inbox: r.IntN(8) == 0, sink: one("", "", policy.ReplyWithhold, policy.ReplyAsk),
		sent:    r.IntN(2) == 0,
		settles: r.IntN(3) > 0, insists: r.IntN(5) == 0,
	}
	names := []string{turnkeeper.ToolAskPerson, turnkeeper.ToolSpawnAgent, turnkeeper.ToolSpawnAgent}
	for _, t := range props {
		names = append(names, t.name)
	}
	for range 1 + r.IntN(5) {
		p.rules[one(names[1:]...)] = one(ruleTexts...)
	}
	n := 0
	draw := func(names []string) line {
		n++
		l := line{n: n, tool: one(names...), text: one(textNone, textWords, textHandle)}
		l.answer = one(answerYes, answerYes, answerNo, answerEdit, answerEdit, answerLate)
		l.to = one("", "ann@example.com", "bob@example.org")
		return l
	}
	for range 1 + r.IntN(4) {
		var calls []line
		for range 1 + r.IntN(4) {
			l := draw(names)
			for range r.IntN(3) {
				l.child = append(l.child, draw([]string{"look", "secret", "page", "mixed", "pay", "send", "photo",
					"book", "muse"}))
			}
			if earlier := p.lines(); l.text == textHandle && len(earlier) > 0 {
				l.of = earlier[r.IntN(len(earlier))].n
			}
			calls = append(calls, l)
		}
		p.rounds = append(p.rounds, calls)
	}
	return p.tidy()
}

// lines returns the calls of the turn itself.
func (p play) lines() []line { return slices.Concat(p.rounds...) }

// find returns a line of the turn or of a sub-agent.
func (p play) find(n int) (line, bool) {
	for _, l := range p.lines() {
		for _, l := range append([]line{l}, l.child...) {
			if l.n == n {
				return l, true
			}
		}
	}
	return line{}, false
}

// tidy returns the play without what means nothing: handles of later calls, empty rounds, arguments that a tool does
// not take.
func (p play) tidy() play {
	var rounds [][]line
	earlier := map[int]bool{}
	for _, calls := range p.rounds {
		var tidied []line
		for _, l := range calls {
			if l.tool == turnkeeper.ToolSpawnAgent || l.tool == turnkeeper.ToolAskPerson {
				l.text, l.to, l.of = textWords, "", 0
			}
			if l.tool != turnkeeper.ToolSpawnAgent {
				l.child = nil
			}
			if l.text == textHandle && !earlier[l.of] {
				l.text, l.of = textWords, 0
			}
			l.child = slices.Clone(l.child)
			for i := range l.child {
				l.child[i].text, l.child[i].of = textWords, 0
			}
			tidied = append(tidied, l)
		}
		for _, l := range tidied {
			earlier[l.n] = true
		}
		if len(tidied) > 0 {
			rounds = append(rounds, tidied)
		}
	}
	p.rounds = rounds
	return p
}

// smaller returns plays with a little less in each.
func (p play) smaller() (all []play) {
	add := func(change func(*play)) {
		q := p
		q.rounds = nil
		for _, calls := range p.rounds {
			q.rounds = append(q.rounds, slices.Clone(calls))
		}
		q.rules = map[string]string{}
		for tool, rule := range p.rules {
			q.rules[tool] = rule
		}
		change(&q)
		if q = q.tidy(); q.String() != p.String() {
			all = append(all, q)
		}
	}
	for i := range p.rounds {
		add(func(q *play) { q.rounds = slices.Delete(q.rounds, i, i+1) })
	}
	for i, calls := range p.rounds {
		for j := range calls {
			add(func(q *play) { q.rounds[i] = slices.Delete(q.rounds[i], j, j+1) })
			for k := range calls[j].child {
				add(func(q *play) { q.rounds[i][j].child = slices.Delete(slices.Clone(calls[j].child), k, k+1) })
			}
			add(func(q *play) { q.rounds[i][j].to = "" })
			add(func(q *play) { q.rounds[i][j].text, q.rounds[i][j].of = textNone, 0 })
			add(func(q *play) { q.rounds[i][j].answer = answerYes })
		}
	}
	for tool := range p.rules {
		add(func(q *play) { delete(q.rules, tool) })
	}
	add(func(q *play) { q.inbox = false })
	add(func(q *play) { q.sink = "" })
	add(func(q *play) { q.insists = false })
	add(func(q *play) { q.settles = true })
	return all
}

// String returns the play as a person reads it.
func (p play) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "inbox untrusted: %v, reply_sink: %s (%v), a person settles: %v, insists: %v\n", p.inbox,
		cmp.Or(p.sink, "none"), p.sent, p.settles, p.insists)
	for _, tool := range sortedKeys(p.rules) {
		fmt.Fprintf(&b, "rule of %s: %s\n", tool, p.rules[tool])
	}
	for i, calls := range p.rounds {
		fmt.Fprintf(&b, "round %d:\n", i+1)
		for _, l := range calls {
			fmt.Fprintf(&b, "  %s\n", l)
			for _, l := range l.child {
				fmt.Fprintf(&b, "    its round: %s\n", l)
			}
		}
	}
	return b.String()
}

func (l line) String() string {
	text := l.text
	if l.text == textHandle {
		text = fmt.Sprintf("the result of c%d", l.of)
	}
	return fmt.Sprintf("c%d %s with %s to %q; a person would say %s", l.n, l.tool, text, l.to, l.answer)
}

func sortedKeys(m map[string]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
