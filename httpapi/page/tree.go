package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/words"
)

// A Branch is an agent in a tree, with its sub-agents.
type Branch struct {
	Agent   string
	Turn    turnkeeper.TurnID    // 0: none yet, or refused
	Message turnkeeper.MessageID // message to the sub-agent; 0: the root, or refused
	State   string               // state of the turn, else of the message; empty: purged
	Call    turnkeeper.CallKey   // call of the parent turn; zero: the root
	Note    string               // further remark
	Tokens  int64
	Here    bool // the turn of this page
	Below   []Branch
}

// Branches returns the turn's tree from its root. Tree must not be nil.
func (p Turn) Branches() Branch {
	tree := p.Tree
	root := Branch{
		Agent: tree.Agent, Turn: tree.Root, State: string(tree.State), Tokens: tree.Usage.Total(),
		Here:  tree.Root == p.Turn.ID,
		Below: p.below(tree.Root),
	}
	for _, a := range tree.SubAgents {
		root.Tokens -= a.Usage.Total()
	}
	if root.State == "" {
		root.Note = "purged"
	}
	return root
}

func (p Turn) below(turn turnkeeper.TurnID) (all []Branch) {
	for _, a := range p.Tree.SubAgents {
		if a.Parent != turn {
			continue
		}
		b := Branch{
			Agent: a.Agent, Turn: a.Turn, Message: a.Message, State: cmp.Or(string(a.TurnState),
				string(a.State)), Call: a.Call,
			Note: noteOn(a), Tokens: a.Usage.Total(), Here: a.Turn == p.Turn.ID,
		}
		if a.Turn != 0 {
			b.Below = p.below(a.Turn)
		}
		all = append(all, b)
	}
	return all
}

func noteOn(a turnlog.SubAgent) string {
	switch {
	case a.Message == 0:
		return "not spawned: " + string(a.Failure)
	case a.State == "":
		return "purged"
	case a.Failure != "":
		return "given up: " + string(a.Failure)
	case a.Dropped && a.EndedAt.IsZero():
		return "no longer waited for"
	}
	return ""
}

// TreeFacts returns the usage of the whole tree.
func (p Turn) TreeFacts() string {
	tree := p.Tree
	facts := []string{words.Plural(len(tree.SubAgents), "sub-agent"), words.Thousands(tree.Usage.Total()) +
		" tokens in total"}
	if limit := tree.Limits.Tokens; limit > 0 {
		facts = append(facts, fmt.Sprintf("%s of %s tokens of the budget", words.Thousands(tree.UsedTokens),
			words.Thousands(limit)))
	}
	if limit := tree.Limits.Calls; limit > 0 {
		facts = append(facts, fmt.Sprintf("%s of %s model calls of the budget", words.Thousands(tree.UsedCalls),
			words.Thousands(limit)))
	}
	return strings.Join(facts, ", ")
}

// May reports whether the viewer sees an agent.
func (v Viewer) May(agent string) bool { return v.All() || slices.Contains(v.Agents, agent) }
