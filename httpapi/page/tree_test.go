package page_test

import (
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/page"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// treeOf returns a scout's turn in a tree that a boss started.
func treeOf() page.Turn {
	agents := func(parent turnkeeper.TurnID, n int, agent string, turn turnkeeper.TurnID,
		state turnkeeper.TurnState) turnlog.SubAgent {
		return turnlog.SubAgent{
			Parent: parent, Call: turnkeeper.CallKey{Round: 1, Ordinal: n}, Agent: agent,
			Message: turnkeeper.MessageID(10 + turn), State: turnkeeper.MessageRunning,
			Turn: turn, TurnState: state, Usage: turnkeeper.Usage{InputTokens: 100},
		}
	}
	refused := turnlog.SubAgent{Parent: 1, Call: turnkeeper.CallKey{Round: 1, Ordinal: 2}, Agent: "ghost",
		Failure: turnlog.SpawnUnknownAgent}
	waits := turnlog.SubAgent{Parent: 1, Call: turnkeeper.CallKey{Round: 1, Ordinal: 3}, Agent: "idler", Message: 40,
		State: turnkeeper.MessageWaiting}
	return page.Turn{Now: time.Now(), TurnView: operate.TurnView{
		Turn: turnkeeper.Turn{ID: 2, Agent: "scout", State: turnkeeper.TurnWaiting},
		Tree: &operate.Tree{
			Root: 1, Agent: "boss", State: turnkeeper.TurnWaiting, Usage: turnkeeper.Usage{InputTokens: 1200},
			Limits: turnlog.TreeLimits{Calls: 40, Tokens: 9000}, UsedCalls: 7, UsedTokens: 1300,
			SubAgents: []turnlog.SubAgent{
				agents(1, 1, "scout", 2, turnkeeper.TurnWaiting), refused, waits, agents(2, 1, "runner", 3,
					turnkeeper.TurnRunning),
			},
		},
	}}
}

func written(t *testing.T, v page.Viewer) string {
	t.Helper()
	var b strings.Builder
	if err := page.Write(&b, page.Frame{Viewer: v, Now: time.Now(), Path: "/turns/2"}, treeOf()); err != nil {
		t.Fatal(err)
	}
	_, tree, _ := strings.Cut(b.String(), `id="tree"`)
	tree, _, _ = strings.Cut(tree, `id="timeline"`)
	return tree
}

func TestTree(t *testing.T) {
	t.Parallel()
	b := treeOf().Branches()
	if b.Tokens != 1000 || b.Here || len(b.Below) != 3 || !b.Below[0].Here || len(b.Below[0].Below) != 1 ||
		b.Below[0].Below[0].Agent != "runner" {
		t.Errorf("%+v", b)
	}
	tree := written(t, page.Viewer{})
	for _, want := range []string{
		`4 sub-agents, 1,200 tokens in total, 1,300 of 9,000 tokens of the budget, 7 of 40 model calls of the budget`,
		`href="/turns/1"`, `<a href="/turns/2" aria-current="page">turn 2</a>, this one`, `href="/turns/3"`,
		`href="/inbox/40"`, `not spawned: unknown_agent`, "round-1-tool-1",
	} {
		if !strings.Contains(tree, want) {
			t.Errorf("%q is not in %s", want, tree)
		}
	}
}

// TestATreeOfWhichAPartMayBeSeen checks that a viewer limited to some agents sees that the other turns exist, and
// nothing else of them.
func TestATreeOfWhichAPartMayBeSeen(t *testing.T) {
	t.Parallel()
	tree := written(t, page.Viewer{Token: "t", Agents: []string{"scout"}})
	for _, hidden := range []string{`href="/turns/1"`, `href="/turns/3"`, `href="/inbox/40"`,
		"unknown_agent", "running"} {
		if strings.Contains(tree, hidden) {
			t.Errorf("%q is in %s", hidden, tree)
		}
	}
	if !strings.Contains(tree, `href="/turns/2"`) || strings.Count(tree, "not visible with this token") != 4 {
		t.Errorf("%s", tree)
	}
}
