package grants_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// The budget of a tree of agents belongs to the root's message, like that of a turn. The spend of
// the first attempt also counts for the second attempt and for all its sub-agents.
func TestSpendOfATreeOutlivesAFailedRoot(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	reserve := func(root, turn turnkeeper.TurnID, agent string) grants.SpendResult {
		t.Helper()
		a, err := h.ReserveSpend(t.Context(), grants.SpendRequest{Turn: turn, Agent: agent, Tokens: 10, Root: root,
			TreeCalls: 3})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := reserve(d.Grant.TurnID, d.Grant.TurnID, "clerk")
	if first.Blocked != "" {
		t.Fatalf("the first call: %+v", first)
	}
	if err := h.SettleSpend(t.Context(), first.Reservation, 7); err != nil {
		t.Fatal(err)
	}
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "no", Retry: true}
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: &failed},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting,
			Log: "finished"}); err != nil {
		t.Fatal(err)
	}
	h.Exec("update turnkeeper.leases set not_before = null")
	root := h.Dispatch("worker-2")[0]
	if root.Record.Turn.Attempt != 2 {
		t.Fatalf("attempt %d", root.Record.Turn.Attempt)
	}
	if a := reserve(root.Grant.TurnID, root.Grant.TurnID, "clerk"); a.Blocked != "" {
		t.Fatalf("the second call of three: %+v", a)
	}

	child := h.below(root, storagetest.Key(1, 1), turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 9, Calls: 3})
	lineage := child.Record.Lineage
	if lineage.Root != root.Grant.TurnID {
		t.Fatalf("the tree of the sub-agent began with turn %d, want %d", lineage.Root, root.Grant.TurnID)
	}
	if a := reserve(lineage.Root, child.Grant.TurnID, "desk"); a.Blocked != "" {
		t.Fatalf("the third call of three: %+v", a)
	}
	for _, turn := range []*storagetest.Dispatch{root, child} {
		if a := reserve(root.Grant.TurnID, turn.Grant.TurnID, turn.Record.Turn.Agent); a.Blocked != "tree" ||
			a.UsedCalls != 3 {
			t.Errorf("a fourth call of a budget of three is made by %s: %+v", turn.Record.Turn.Agent, a)
		}
	}

	// A second attempt of a sub-agent uses the budget of the same tree.
	if err := child.Append(t.Context(), turnlog.Entry{Outcome: &failed},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished"}); err != nil {
		t.Fatal(err)
	}
	h.Exec("update turnkeeper.leases set not_before = null")
	again := h.Dispatch("worker-3")[0]
	if a := reserve(again.Record.Lineage.Root, again.Grant.TurnID, "desk"); again.Record.Turn.Attempt != 2 ||
		a.Blocked != "tree" {
		t.Errorf("attempt %d of the sub-agent: %+v", again.Record.Turn.Attempt, a)
	}

	view, err := h.ViewTurn(t.Context(), root.Grant.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	if tree := view.Tree; tree == nil || tree.UsedCalls != 3 || tree.UsedTokens != 7+10+10 {
		t.Errorf("an operator is shown %+v", view.Tree)
	}
}

// below starts a sub-agent of a turn, the desk, and returns its dispatch.
func (h *env) below(d *storagetest.Dispatch, k turnkeeper.CallKey, limits turnlog.TreeLimits) *storagetest.Dispatch {
	h.T.Helper()
	d.Write(h.T, turnlog.Entry{Round: storagetest.Round(k.Round, turnkeeper.EffectOnce),
		Events: storagetest.Events(turnkeeper.EventTurnStart)})
	message, err := d.NewMessage(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	s := storagetest.Start(k, "spawn", 1, turnkeeper.EffectOnce)
	s.Spawn = &turnlog.Spawn{
		Message: message, Agent: "desk", Task: "look it up", Root: d.Grant.TurnID, Limits: limits, Within: time.Hour,
		Agents: []string{d.Record.Turn.Agent, "desk"},
	}
	d.Write(h.T, turnlog.Entry{
		Starts: []turnlog.CallStart{s}, Results: []turnlog.CallResult{storagetest.Result(k, s.Nonce,
			turnkeeper.CallRunning, "not yet")},
	})
	all := h.Dispatch("worker-2")
	if len(all) != 1 || all[0].Record.Message.ID != message {
		h.T.Fatalf("dispatched %d turns, want the sub-agent's", len(all))
	}
	return all[0]
}
