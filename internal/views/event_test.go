package views_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/views"
)

// TestWhatASenderSeesOfEachEvent compares what those who may only send see of each event, with data of which no
// field is empty.
func TestWhatASenderSeesOfEachEvent(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, row := range views.EventRows {
		event := turnkeeper.Event{TurnID: 41, Seq: 7, Type: row.Type, Round: 2, Block: 3, At: golden.Now}
		if row.Data != nil {
			event.Data = fullJSON(t, row.Data)
		}
		seen, ok := views.ForSender(event)
		if ok != row.Send {
			t.Errorf("%s is sent: %v", row.Type, ok)
		}
		fmt.Fprintf(&b, "%s\n  whole   %s\n", row.Type, event.Data)
		if ok {
			fmt.Fprintf(&b, "  sent    %s\n  fields  %v\n", seen.Data, views.SentFields(row.Data))
		}
		event.Data, seen.Data = nil, nil
		if !reflect.DeepEqual(seen, event) {
			t.Errorf("%s: the sender sees %+v", row.Type, seen)
		}
	}
	golden.File(t, "testdata/events.txt", b.String())
}

// fullJSON returns the JSON of a value of the same type as data, without empty fields.
func fullJSON(t *testing.T, data any) json.RawMessage {
	t.Helper()
	v := reflect.New(reflect.TypeOf(data))
	golden.Fill(v.Interface(), 100)
	text, err := json.Marshal(v.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(text, []byte(`,"guarded":true`), nil) // TestWhatASenderDoesNotSee has guarded text
}

// TestWhatASenderDoesNotSee hides guarded text, names of tools that are not there, and events that have nothing else.
func TestWhatASenderDoesNotSee(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind       turnkeeper.EventType
		data, want string // want empty: not sent
	}{
		{turnkeeper.EventBlockDelta, `{"text":"a"}`, `{"text":"a"}`},
		{turnkeeper.EventBlockDelta, `{"text":"a","guarded":true}`, ""},
		{turnkeeper.EventBlockDelta, `{"thinking":"a"}`, ""},
		{turnkeeper.EventBlockDelta, `[1]`, ""},
		{turnkeeper.EventNotice, `{"text":"a"}`, ""},
		{turnkeeper.EventBlockStart, `{"kind":"tool_use","tool":"secret"}`, `{"kind":"tool_use","tool":"secret"}`},
		{turnkeeper.EventBlockStart, `{"kind":"tool_use","tool":"secret","unknown":true}`,
			`{"kind":"tool_use","tool":"(unknown tool)"}`},
		{turnkeeper.EventToolStarted, `{"name":"secret","unknown":true}`, `{"name":"(unknown tool)"}`},
		{turnkeeper.EventBlockStop, "", "nothing"},
		{"later", `{"text":"a"}`, ""},
	} {
		seen, ok := views.ForSender(turnkeeper.Event{Type: c.kind, Data: json.RawMessage(c.data)})
		got := string(seen.Data)
		if ok && got == "" {
			got = "nothing"
		}
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s %s: %v, %s", c.kind, c.data, ok, got)
		}
	}
}

// TestScopesThatCombine checks that a token that may send never answers asks.
func TestScopesThatCombine(t *testing.T) {
	t.Parallel()
	for _, a := range views.Scopes() {
		for _, b := range views.Scopes() {
			refused := a == views.ScopeSend && b == views.ScopeAnswer || a == views.ScopeAnswer && b == views.ScopeSend
			if got := views.CanCombine([]string{a, b}); got == refused {
				t.Errorf("%s and %s: %v", a, b, got)
			}
		}
	}
}

// TestNothingIsNull checks that empty lists are lists and only zero values are null.
func TestNothingIsNull(t *testing.T) {
	t.Parallel()
	if all := views.All(nil, func(n int) int { return n }); all == nil {
		t.Error("an empty list is null")
	}
	if views.OrNull(0) != nil || views.OrNull("") != nil || *views.OrNull(7) != 7 {
		t.Error("null is not the zero value")
	}
}
