package journal_test

import (
	"errors"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

func TestPartsOfAnOutput(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	r := storagetest.Round(1, turnkeeper.EffectNone)
	d.Write(t, turnlog.Entry{Round: r})
	read := storagetest.Result(r.Calls[0].Key, "", turnkeeper.CallSucceeded, "cut")
	read.Output = &turnkeeper.Output{ID: "o", Text: "aé日😀z", Chars: 5, SizeBytes: 11, Tokens: 2, SHA256: "s",
		MediaType: "text/plain"}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{read}})
	turn := d.Grant.TurnID
	for span, want := range map[[2]int64]string{
		{0, 5}: "aé日😀z", {1, 4}: "é日😀", {3, 1 << 60}: "😀z", {-5, 1}: "a", {4, 4}: "", {3, 1}: "", {9, 12}: "",
		{1 << 60, 1 << 61}: "",
	} {
		if got, err := h.ReadOutput(t.Context(), turn, "o", span[0], span[1]); err != nil || got != want {
			t.Errorf("%v: %q, error %v", span, got, err)
		}
	}
	for range 2 {
		if err := h.NoteRetrieved(t.Context(), turn, "o"); err != nil {
			t.Fatal(err)
		}
	}
	o, err := h.DescribeOutput(t.Context(), turn, "o")
	if err != nil || o.Chars != 5 || o.SizeBytes != 11 || o.Retrieved != 2 || o.Text != "" {
		t.Errorf("%+v, error %v", o, err)
	}
	// The turn gets a second output.
	r = storagetest.Round(2, turnkeeper.EffectNone)
	d.Write(t, turnlog.Entry{Round: r})
	read = storagetest.Result(r.Calls[0].Key, "", turnkeeper.CallSucceeded, "cut")
	read.Output = &turnkeeper.Output{ID: "p", Text: "other", Chars: 5, SizeBytes: 5, SHA256: "s", MediaType: "text/csv"}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{read}})
	for id, want := range map[turnkeeper.OutputID]string{"o": "aé日😀z of text/plain", "p": "other of text/csv"} {
		text, err := h.ReadOutput(t.Context(), turn, id, 0, 5)
		o, found := h.DescribeOutput(t.Context(), turn, id)
		if got := text + " of " + o.MediaType; got != want || err != nil || found != nil {
			t.Errorf("%s: %q, want %q, errors %v, %v", id, got, want, err, found)
		}
	}
	// A handle from another turn is unknown.
	if _, err := h.ReadOutput(t.Context(), turn+1, "o", 0, 5); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("from another turn: %v", err)
	}
	if _, err := h.DescribeOutput(t.Context(), turn+1, "o"); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("from another turn: %v", err)
	}
}
