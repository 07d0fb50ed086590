package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestStreamsOfWhatHasExpired goes on with the streams of a turn and of its message after events that retention has
// deleted.
func TestStreamsOfWhatHasExpired(t *testing.T) {
	h := newEnv(t)
	sends := h.token(operate.Token{Name: "sends", Scopes: []string{"send"}})
	message := h.sendAs("", "clerk", "talk")
	d := h.dispatch("clerk")
	d.say("one")
	d.say("two")
	d.say("three")
	d.finish("said")
	whole := stored(h.frames(t.Context(), message, ""))
	if _, err := h.Expire(t.Context(), retention.Events, 0); err != nil {
		t.Fatal(err)
	}
	last := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	document := readDocument(t, h.ask("GET", "/openapi.json", "").body)
	for _, after := range []string{"", whole[0].id, whole[1].id} {
		for _, headers := range [][]string{{}, {"Authorization", sends}} {
			all := stored(h.frames(t.Context(), message, after, headers...))
			if got := kinds(all); !slices.Equal(got, []string{"events_expired", "turn_complete", "message_closed"}) {
				t.Fatalf("after %q came %v", after, got)
			}
			if data := all[0].data; data.Seq != last-1 || data.Data["first"] != 1.0 ||
				data.Data["last"] != float64(last-1) {
				t.Errorf("what has expired is %s, the last event is %d", all[0].raw, last)
			}
			document.checkEvent(t, all[0])
		}
	}
	for after, want := range map[int64][]int64{0: {last - 1, last}, 1: {last - 1, last}, last - 2: {last - 1, last},
		last - 1: {last}} {
		w := &watcher{base: h.base}
		if after > 0 {
			w.seen = []int64{after}
		}
		if err := w.watch(t.Context(), fmt.Sprintf("/v1/turns/%d/events", d.id), 0); err != nil ||
			!slices.Equal(w.seen[len(w.seen)-len(want):], want) || !w.over {
			t.Errorf("after event %d the stream gave %v, %v", after, w.seen, err)
		}
	}
	h.ask("GET", fmt.Sprintf("/v1/turns/%d/events", d.id), "", "Accept", "text/event-stream", "Last-Event-ID",
		fmt.Sprint(last)).want(t, 204, "")
	h.ask("GET", fmt.Sprintf("/v1/turns/%d/events", d.id), "").want(t, 200, `"type":"events_expired"`)
	h.ask("GET", fmt.Sprintf("/v1/turns/%d", d.id), "").want(t, 200, `"events_expired_at":"`)
	h.ask("GET", fmt.Sprintf("/turns/%d", d.id), "").want(t, 200, "events: all but the last were deleted by retention")
}

// TestOutputsThatHaveExpired asks for a text and for binary content that retention has deleted, over HTTP and on the
// page.
func TestOutputsThatHaveExpired(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "talk")
	for i, o := range []turnkeeper.Output{{ID: "text", Text: "secret text"},
		{ID: "bytes", Bytes: []byte("secret bytes")}} {
		o.MediaType, o.SizeBytes, o.SHA256 = "text/plain", 12, "s"
		d.write(turnlog.Entry{Round: storagetest.Round(i+1, turnkeeper.EffectNone)}, turnlog.Consequence{})
		d.write(turnlog.Entry{Results: []turnlog.CallResult{{Key: storagetest.Key(i+1, 1),
			State: turnkeeper.CallSucceeded, Shown: "shown", Output: &o}}}, turnlog.Consequence{})
	}
	d.finish("said")
	if _, err := h.Expire(t.Context(), retention.Outputs, 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"text", "bytes"} {
		h.ask("GET", "/v1/outputs/"+id, "").want(t, 410, "expired: the content of output "+id)
		page := h.ask("GET", "/outputs/"+id, "")
		page.want(t, 200, "Expired: retention has deleted the content.")
		if strings.Contains(string(page.body), "secret") || strings.Contains(string(page.body), "/v1/outputs/") {
			t.Errorf("the page of output %s shows %s", id, page.body)
		}
	}
	turn := h.ask("GET", fmt.Sprintf("/turns/%d", d.id), "")
	turn.want(t, 200, "outputs: their content was deleted by retention")
	turn.want(t, 200, "expired, ")
	h.ask("GET", fmt.Sprintf("/v1/turns/%d", d.id), "").want(t, 200, `"expired_at":"`)
}

// TestLeasesThatHaveExpired shows a turn whose dispatches retention has deleted.
func TestLeasesThatHaveExpired(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "talk")
	d.finish("said")
	if _, err := h.Expire(t.Context(), retention.Leases, 0); err != nil {
		t.Fatal(err)
	}
	page := h.ask("GET", fmt.Sprintf("/turns/%d", d.id), "")
	page.want(t, 200, "leases: the log of ended dispatches was deleted by retention")
	page.want(t, 200, "Deleted by retention.")
	h.ask("GET", fmt.Sprintf("/v1/turns/%d", d.id), "").want(t, 200, `"leases_expired_at":"`)
}
