package turnctl

import (
	"cmp"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/turnlog"
)

// tree prints the tree of sub-agents.
func (p *turnPage) tree() {
	tree := p.Tree
	if tree == nil {
		return
	}
	about := []string{term.Plural(len(tree.SubAgents), "sub-agent") + " below turn " + fmt.Sprint(tree.Root),
		tokens(tree.Usage)}
	if budget := p.treeBudget(); budget != "" {
		about = append(about, budget)
	}
	p.heading("Sub-agents", strings.Join(about, " · "))
	if l := tree.Lineage; l.Parent != 0 {
		p.Line("  %s", p.Paint(term.Dim, term.OneLine(fmt.Sprintf("this turn works for turn %d, %s: %s", l.Parent,
			l.Call, strings.Join(l.Agents, " → ")), 0)))
	}
	p.Line("  %s %s  %s", p.Paint(term.ToneOf(tree.State), term.SignOf(tree.State)),
		p.Paint(term.Bold, term.OneLine(term.OrDash(tree.Agent), 64)),
		p.Paint(term.Dim, p.turnWords(tree.Root, string(tree.State))))
	p.below(tree.Root, 1)
}

// below prints the sub-agents below a turn, at all levels.
func (p *turnPage) below(turn turnkeeper.TurnID, depth int) {
	for _, a := range p.Tree.SubAgents {
		if a.Parent != turn {
			continue
		}
		facts := []string{a.Call.String(), p.subAgentWords(a)}
		if a.Usage.Total() > 0 {
			facts = append(facts, term.Thousands(a.Usage.Total())+" tokens")
		}
		p.Line("  %s%s %s  %s", strings.Repeat("   ", depth), p.Paint(term.ToneOf(a.TurnState),
			term.SignOf(a.TurnState)),
			p.Paint(term.Bold, term.OneLine(a.Agent, 64)),
			p.Paint(term.Dim, term.OneLine(strings.Join(facts, " · "), 0)))
		if a.Turn != 0 {
			p.below(a.Turn, depth+1)
		}
	}
}

// subAgentWords describes the state of a sub-agent.
func (p *turnPage) subAgentWords(a turnlog.SubAgent) string {
	switch {
	case a.Message == 0:
		return "not spawned: " + string(a.Failure)
	case a.State == "":
		return fmt.Sprintf("message %d, purged", a.Message)
	}
	words := fmt.Sprintf("message %d, ", a.Message) + p.turnWords(a.Turn, cmp.Or(string(a.TurnState), string(a.State)))
	switch {
	case a.Failure != "":
		words += ", given up: " + string(a.Failure)
	case a.Dropped && a.EndedAt.IsZero():
		words += ", no longer waited for"
	}
	return words
}

func (p *turnPage) turnWords(turn turnkeeper.TurnID, state string) string {
	words := term.OrDash(state)
	if turn != 0 {
		words = fmt.Sprintf("turn %d, ", turn) + words
	}
	if turn == p.Turn.ID {
		words += " (this one)"
	}
	return words
}

// treeBudget describes the use of the tree's budget; it returns "" if it has none.
func (p *turnPage) treeBudget() string {
	var parts []string
	if limit := p.Tree.Limits.Tokens; limit > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s tokens", term.Thousands(p.Tree.UsedTokens), term.Thousands(limit)))
	}
	if limit := p.Tree.Limits.Calls; limit > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s calls", term.Thousands(p.Tree.UsedCalls), term.Thousands(limit)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "budget " + strings.Join(parts, ", ")
}
