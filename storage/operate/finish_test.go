package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestAFinishKeepsItsReason finishes a turn by its message: who reads the turn learns how it is to end, and why.
func TestAFinishKeepsItsReason(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("one")
	done, err := h.FinishMessage(t.Context(), d.Record.Message.ID, "enough is known")
	if err != nil || done.Turn != d.Grant.TurnID || done.Closed {
		t.Fatalf("%+v, error %v", done, err)
	}
	view, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
	if err != nil || view.End == nil || view.End.How != turnlog.EndFinish || view.End.Reason != "enough is known" ||
		view.End.Turn != d.Grant.TurnID {
		t.Errorf("%+v, error %v", view.End, err)
	}
}

// spawned makes turns sub-agents of a turn, in the order of its calls.
func (h *env) spawned(parent *storagetest.Dispatch, children ...*storagetest.Dispatch) {
	h.T.Helper()
	h.Exec(`insert into turnkeeper.agent_trees (root, max_depth, max_agents) values ($1, 5, 9)`, parent.Grant.TurnID)
	for i, child := range children {
		h.Exec(`insert into turnkeeper.spawned_calls
			(turn_id, round, ordinal, message_id, agent, root, agents, deadline)
			select $1, 1, $2, message_id, agent, $1, array['clerk', agent], clock_timestamp() + interval '1 hour'
			from turnkeeper.turns where id = $3`, parent.Grant.TurnID, i+1, child.Grant.TurnID)
	}
}

// TestAFinishReachesEverySubAgent finishes turns whose sub-agents are being cancelled, or end during the request. The
// request still succeeds, and reaches every other sub-agent, at all levels: those that wait are resumed, and those that
// run are asked to finish.
func TestAFinishReachesEverySubAgent(t *testing.T) {
	h := newEnv(t)
	running := func(name string) *storagetest.Dispatch {
		h.Submit("desk", name, "x")
		return h.Dispatch("worker-1")[0]
	}
	parent, only := running("parent"), running("parent of one")
	waits, cancelled, ends, runs, last := h.Waiting("waits"), running("cancelled"), running("ends"), running("runs"),
		h.Waiting("last")
	below, alone, other := h.Waiting("below"), running("alone"), h.Waiting("other")
	h.spawned(parent, waits, cancelled, ends, runs, last)
	h.spawned(runs, below)
	h.spawned(only, alone)
	for _, d := range []*storagetest.Dispatch{cancelled, alone} {
		h.AskCancel(d)
	}
	finish := func(ctx context.Context, db *storagetest.DB, d *storagetest.Dispatch) error {
		done, err := db.FinishTurn(ctx, d.Grant.TurnID, "be brief")
		if err == nil && (done.Turn != d.Grant.TurnID || done.Closed) {
			return fmt.Errorf("%+v", done)
		}
		return err
	}
	if err := finish(t.Context(), h.DB, only); err != nil {
		t.Errorf("the only sub-agent is being cancelled: %v", err)
	}
	const lock = "select from turnkeeper.turns where id = $1 for update"
	if !h.WaitsBehind(func() { ends.Finish(t, "done") }, func(ctx context.Context, db *storagetest.DB) error {
		return finish(ctx, db, parent)
	}, lock, waits.Grant.TurnID) {
		t.Error("no sub-agent ended meanwhile")
	}
	got, want := map[string]string{}, map[string]string{
		"parent": "running finish: be brief", "parent of one": "running finish: be brief",
		"waits": "queued finish: its parent, turn %d, is to finish", "cancelled": "running cancel: enough",
		"ends": "succeeded finish: be brief", "runs": "running finish: its parent, turn %d, is to finish",
		"last":  "queued finish: its parent, turn %d, is to finish",
		"below": "queued finish: its parent, turn %d, is to finish", "alone": "running cancel: enough",
		"other": "waiting",
	}
	for _, d := range []*storagetest.Dispatch{parent, only, waits, cancelled, ends, runs, last, below, alone, other} {
		view, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
		if err != nil {
			t.Fatal(err)
		}
		name := view.Turn.Conversation
		if got[name] = string(view.Turn.State); view.End != nil {
			got[name] += fmt.Sprintf(" %s: %s", view.End.How, view.End.Reason)
		}
		above := parent
		if d == below {
			above = runs
		}
		want[name] = strings.ReplaceAll(want[name], "%d", fmt.Sprint(above.Grant.TurnID))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	if err := finish(t.Context(), h.DB, parent); err != nil {
		t.Errorf("a repeat: %v", err)
	}
}

// TestAFinishThatDoesNotReachASubAgentFails finishes a turn while another transaction holds the row of a sub-agent
// that waits: whoever asks learns that it is to be asked again.
func TestAFinishThatDoesNotReachASubAgentFails(t *testing.T) {
	h := newEnv(t)
	parent, waits := h.Turn("parent"), h.Waiting("waits")
	h.spawned(parent, waits)
	hurried := storagetest.OpenWith(t, storage.Options{URL: h.URL, LockTimeout: 50 * time.Millisecond})
	hold, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(t.Context(), "select from turnkeeper.turns where id = $1 for update",
		waits.Grant.TurnID); err != nil {
		t.Fatal(err)
	}
	if _, err := hurried.FinishTurn(t.Context(), parent.Grant.TurnID, "enough"); !errors.Is(err, operate.ErrHeldUp) {
		t.Errorf("a sub-agent was not reached, and the error is %v", err)
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.FinishTurn(t.Context(), parent.Grant.TurnID, "enough"); err != nil {
		t.Fatal(err)
	}
	view, err := h.ViewTurn(t.Context(), waits.Grant.TurnID)
	if err != nil || view.Turn.State != turnkeeper.TurnQueued {
		t.Errorf("after a repeat, the sub-agent is %s, error %v", view.Turn.State, err)
	}
}

// TestACreatedConversationIsReadBack reads a conversation as it was written, with the time at which that was.
func TestACreatedConversationIsReadBack(t *testing.T) {
	h := newEnv(t)
	want := operate.Created{ID: "conv_1", Items: json.RawMessage(`[{"a": 1}]`), Metadata: map[string]string{"k": "v"}}
	at, err := h.CreateConversation(t.Context(), want, 0, "anna")
	if err != nil {
		t.Fatal(err)
	}
	h.Exec("update turnkeeper.api_conversations set created_at = created_at - interval '3 hours'")
	got, err := h.CreatedConversation(t.Context(), want.ID, 0, "anna")
	if err != nil || !got.At.Equal(at.Add(-3*time.Hour)) || got.ID != want.ID || got.Metadata["k"] != "v" ||
		string(got.Items) != string(want.Items) {
		t.Errorf("got %+v, created %s, error %v", got, at, err)
	}
	if _, err := h.CreatedConversation(t.Context(), want.ID, 0, "bob"); err == nil {
		t.Error("another user reads it")
	}
}
