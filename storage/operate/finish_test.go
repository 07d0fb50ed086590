package operate_test

import (
	"encoding/json"
	"testing"
	"time"

	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
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
