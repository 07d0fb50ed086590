package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/httpapi/responses"
	"turnkeeper/internal/turnlog"
)

// An act is an event of a turn: type, round, block, data.
type act struct {
	kind         turnkeeper.EventType
	round, block int
	data         string
}

func (d *dispatch) acts(all ...act) {
	d.t.Helper()
	var events []turnkeeper.Event
	for _, a := range all {
		events = append(events, turnkeeper.Event{Type: a.kind, Round: a.round, Block: a.block, Data: []byte(a.data)})
	}
	d.write(turnlog.Entry{Events: events}, turnlog.Consequence{})
}

// writes returns the events of a block of text.
func writes(round, block int, texts ...string) []act {
	all := []act{{turnkeeper.EventBlockStart, round, block, `{"kind":"text"}`}}
	for _, text := range texts {
		all = append(all, act{turnkeeper.EventBlockDelta, round, block, fmt.Sprintf(`{"text":%q}`, text)})
	}
	return append(all, act{turnkeeper.EventBlockStop, round, block, ""})
}

func begins(round int) act { return act{turnkeeper.EventRoundStart, round, 0, `{"of":3}`} }

// items returns the items of a stream: the text of each, its phase and its status.
func items(all []sent) (items []string) {
	texts := map[string]string{}
	for _, e := range all {
		var data struct {
			ItemID string `json:"item_id"`
			Item   struct{ ID, Phase, Status string }
		}
		if err := json.Unmarshal([]byte(e.raw), &data); err != nil {
			panic(err)
		}
		switch e.Type {
		case "response.output_text.delta":
			texts[data.ItemID] += e.Delta
		case "response.output_item.done":
			items = append(items, strings.Join([]string{texts[data.Item.ID], data.Item.Phase, data.Item.Status}, "|"))
		}
	}
	return items
}

// TestDrafts checks what the stream of a response with drafts says of the texts that a turn writes, whatever becomes of
// them.
func TestDrafts(t *testing.T) {
	h := newEnv(t)
	rollback := act{turnkeeper.EventRoundRollback, 1, 0, `{"reason":"x"}`}
	calls := act{turnkeeper.EventBlockStart, 1, 2, `{"kind":"tool_use","tool":"search"}`}
	for name, test := range map[string]struct {
		acts  []act
		reply string
		want  []string
	}{
		"the reply": {writes(1, 1, "  Hel", "lo \n", "\nyou. \n"), "Hello \n\nyou.",
			[]string{"Hello \n\nyou.|final_answer|completed"}},
		"a comment": {slices.Concat(writes(1, 1, "I look."), []act{calls, begins(2)},
			writes(2, 3, "Found.")), "Found.", []string{"I look.|commentary|completed",
			"Found.|final_answer|completed"}},
		"a lost worker": {slices.Concat(writes(1, 1, "Hal"), []act{rollback, begins(1)},
			writes(1, 2, "Hello.")), "Hello.", []string{"Hal|commentary|incomplete", "Hello.|final_answer|completed"}},
		"more in the reply": {writes(1, 1, "Half"), "Half\n\n[It ended early.]",
			[]string{"Half\n\n[It ended early.]|final_answer|completed"}},
		"another reply": {writes(1, 1, "A secret."), "The answer was withheld.",
			[]string{"A secret.|commentary|incomplete", "The answer was withheld.|final_answer|completed"}},
		"guarded": {[]act{{turnkeeper.EventBlockStart, 1, 1, `{"kind":"text"}`},
			{turnkeeper.EventBlockDelta, 1, 1, `{"text":"A secret.","guarded":true}`}}, "Hello.",
			[]string{"Hello.|final_answer|completed"}},
		"thoughts and arguments": {[]act{{turnkeeper.EventBlockDelta, 1, 1, `{"thinking":"Hm."}`},
			{turnkeeper.EventBlockDelta, 1, 2, `{"arguments":"{}"}`}}, "Hello.",
			[]string{"Hello.|final_answer|completed"}},
		"nothing but white space": {writes(1, 1, " \n"), "Hello.", []string{"Hello.|final_answer|completed"}},
		"an answer that goes on": {slices.Concat(writes(1, 1, "Wait."), []act{begins(2)}, writes(2, 2, "Done.")),
			"Done.", []string{"Wait.|commentary|completed", "Done.|final_answer|completed"}},
		"a text longer than a delta": {writes(1, 1, strings.Repeat("ü", 2000)), strings.Repeat("ü", 2000),
			[]string{strings.Repeat("ü", 2000) + "|final_answer|completed"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := h.respond(`{"model":"clerk","input":"talk","background":true}`, responses.DraftsHeader, "true")
			d := h.dispatch("clerk")
			d.acts(slices.Concat([]act{{turnkeeper.EventTurnStart, 0, 0, `{}`}, begins(1)}, test.acts)...)
			d.finish(test.reply)
			all, err := h.events(h.base, "/v1/responses/"+r.ID+"?stream=true", 0)
			if err != nil {
				t.Fatal(err)
			}
			fitAll(t, all)
			if diff := cmp.Diff(test.want, items(all)); diff != "" {
				t.Error(diff)
			}
			last := all[len(all)-1]
			if last.Type != "response.completed" || last.Response.text() != test.reply {
				t.Errorf("the last event is %s", last.raw)
			}
			for i, e := range all {
				if e.Number != int64(i) {
					t.Fatalf("event %d has the number %d", i, e.Number)
				}
			}
			rest, err := h.events(h.base, "/v1/responses/"+r.ID+"?stream=true&starting_after=3", 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(raw(all[4:]), raw(rest)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDraftsWhileTheyAreWritten checks that a text is sent while its turn runs, that a text of a failed attempt is
// void, that a stream that was cut continues, and that only who asked for drafts gets them.
func TestDraftsWhileTheyAreWritten(t *testing.T) {
	h := newEnv(t)
	_, second := h.serve()
	h.respond(`{"model":"clerk","input":"talk","background":true}`, responses.DraftsHeader, "true")
	const path = "/v1/responses/resp_1?stream=true"
	d := h.dispatch("clerk")
	d.acts(slices.Concat([]act{{turnkeeper.EventTurnStart, 0, 0, `{}`}, begins(1)}, writes(1, 1, "One "))...)
	begun, err := h.events(h.base, path, 6)
	if err != nil || said(begun) != "One" || begun[5].Type != "response.output_text.delta" {
		t.Fatalf("while the turn runs there are %v, %v", types(begun), err)
	}
	d.acts(act{turnkeeper.EventBlockDelta, 1, 1, `{"text":"two"}`})
	more, err := h.events(second, path+"&starting_after=5", 1)
	if err != nil || said(more) != " two" {
		t.Fatalf("then there are %v, %v", types(more), err)
	}
	d.write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnError, Data: []byte(`{"state":"failed","retry":true}`)}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Retry: true,
			Counted: true},
	}, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished"})
	h.answerNext("Three.")
	all, err := h.events(second, path, 0)
	if err != nil {
		t.Fatal(err)
	}
	fitAll(t, all)
	if diff := cmp.Diff([]string{"One two|commentary|incomplete", "Three.|final_answer|completed"},
		items(all)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(raw(slices.Concat(begun, more)), raw(all[:7])); diff != "" {
		t.Error(diff)
	}
	// A reference to any of the items is one to the response.
	c := &chat{env: h}
	c.items = []map[string]any{
		{"role": "user", "content": "talk"}, {"type": "item_reference", "id": "msg_1_1_1"}, {"type": "item_reference",
			"id": "msg_1"}, {"role": "user", "content": "More"},
	}
	if next := c.send(); next.Conversation.ID != h.response("resp_1").Conversation.ID {
		t.Errorf("the next message is in %q", next.Conversation.ID)
	}
}

// TestDraftsOfACancelledResponse checks the end of a stream with a text whose turn is cancelled, and of one that waits
// for its turn.
func TestDraftsOfACancelledResponse(t *testing.T) {
	h := newEnv(t)
	for _, running := range []bool{true, false} {
		id := h.respond(`{"model":"clerk","input":"talk","background":true}`, responses.DraftsHeader, "true").ID
		got := make(chan []sent, 1)
		go func() {
			all, err := h.events(h.base, "/v1/responses/"+id+"?stream=true", 0)
			if err != nil {
				t.Error(err)
			}
			got <- all
		}()
		want := []string(nil)
		if running {
			d := h.dispatch("clerk")
			d.acts(slices.Concat([]act{{turnkeeper.EventTurnStart, 0, 0, `{}`}, begins(1)}, writes(1, 1, "One"))...)
			d.write(turnlog.Entry{
				Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnError, Data: []byte(`{"state":"cancelled"}`)}},
				Outcome: &turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled,
					Reply: "cancelled"},
			}, turnlog.Consequence{Message: turnkeeper.MessageCancelled, Log: "finished"})
			want = []string{"One|commentary|incomplete"}
		} else {
			h.ask("POST", "/v1/responses/"+id+"/cancel", "").want(t, 200, "cancelled")
		}
		all := <-got
		if diff := cmp.Diff(want, items(all)); diff != "" || all[len(all)-1].Response.Status != "cancelled" {
			t.Errorf("it ended with %s %s", all[len(all)-1].raw, diff)
		}
	}
}
