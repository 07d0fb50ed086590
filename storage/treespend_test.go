package storage_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// The budget of a tree of agents is its message's, as a turn's is: what the first
// attempt at the root's message has taken is taken for the second, and for all below.
func TestSpendOfATreeOutlivesAFailedRoot(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	reserve := func(root, turn turnkeeper.TurnID, agent string) storage.SpendAnswer {
		t.Helper()
		a, err := h.ReserveSpend(t.Context(), storage.SpendRequest{Turn: turn, Agent: agent, Tokens: 10, Root: root, TreeCalls: 3})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := reserve(d.grant.TurnID, d.grant.TurnID, "clerk")
	if first.Blocked != "" {
		t.Fatalf("the first call: %+v", first)
	}
	if err := h.SettleSpend(t.Context(), first.Reservation, 7); err != nil {
		t.Fatal(err)
	}
	failed := turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no", Retry: true}
	if err := d.Append(t.Context(), turnkeeper.Entry{Outcome: &failed}, storage.Ending{Message: turnkeeper.MessageWaiting, Log: "finished"}); err != nil {
		t.Fatal(err)
	}
	h.exec("update turnkeeper.leases set not_before = null")
	root := h.dispatch("worker-2")[0]
	if root.record.Turn.Attempt != 2 {
		t.Fatalf("attempt %d", root.record.Turn.Attempt)
	}
	if a := reserve(root.grant.TurnID, root.grant.TurnID, "clerk"); a.Blocked != "" {
		t.Fatalf("the second call of three: %+v", a)
	}

	child := h.below(root, key(1, 1), turnkeeper.TreeLimits{MaxDepth: 3, MaxAgents: 9, Calls: 3})
	lineage := child.record.Lineage
	if lineage.Root != root.grant.TurnID {
		t.Fatalf("the tree of the sub-agent began with turn %d, want %d", lineage.Root, root.grant.TurnID)
	}
	if a := reserve(lineage.Root, child.grant.TurnID, "desk"); a.Blocked != "" {
		t.Fatalf("the third call of three: %+v", a)
	}
	for _, turn := range []*dispatch{root, child} {
		if a := reserve(root.grant.TurnID, turn.grant.TurnID, turn.record.Turn.Agent); a.Blocked != "tree" || a.UsedCalls != 3 {
			t.Errorf("a fourth call of a budget of three is made by %s: %+v", turn.record.Turn.Agent, a)
		}
	}

	// A sub-agent whose turn fails goes on with the same tree.
	if err := child.Append(t.Context(), turnkeeper.Entry{Outcome: &failed}, storage.Ending{Message: turnkeeper.MessageWaiting, Log: "finished"}); err != nil {
		t.Fatal(err)
	}
	h.exec("update turnkeeper.leases set not_before = null")
	again := h.dispatch("worker-3")[0]
	if a := reserve(again.record.Lineage.Root, again.grant.TurnID, "desk"); again.record.Turn.Attempt != 2 || a.Blocked != "tree" {
		t.Errorf("attempt %d of the sub-agent: %+v", again.record.Turn.Attempt, a)
	}

	view, err := h.ViewTurn(t.Context(), root.grant.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	if tree := view.Tree; tree == nil || tree.UsedCalls != 3 || tree.UsedTokens != 7+10+10 {
		t.Errorf("an operator is shown %+v", view.Tree)
	}
}

// below has a turn give work to the desk, and takes the turn of that.
func (h *house) below(d *dispatch, k turnkeeper.CallKey, limits turnkeeper.TreeLimits) *dispatch {
	h.t.Helper()
	d.append(h.t, turnkeeper.Entry{Round: round(k.Round, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	message, err := d.NewMessage(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	s := start(k, "spawn", 1, turnkeeper.EffectOnce)
	s.Spawn = &turnkeeper.Spawn{
		Message: message, Agent: "desk", Task: "look it up", Root: d.grant.TurnID, Limits: limits, Within: time.Hour,
		Agents: []string{d.record.Turn.Agent, "desk"},
	}
	d.append(h.t, turnkeeper.Entry{
		Starts: []turnkeeper.CallStart{s}, Results: []turnkeeper.CallResult{result(k, s.Nonce, turnkeeper.CallRunning, "not yet")},
	})
	all := h.dispatch("worker-2")
	if len(all) != 1 || all[0].record.Message.ID != message {
		h.t.Fatalf("dispatched %d turns, want the sub-agent's", len(all))
	}
	return all[0]
}
