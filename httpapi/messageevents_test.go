package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A frame is one server-sent event of a message.
type frame struct {
	id, kind string
	data     struct {
		TurnID int64 `json:"turn_id"`
		Seq    int64
		Type   string
		Data   map[string]any
	}
	raw string
}

// frames opens the stream of a message after a position. It sends the events until the stream ends or ctx does.
func (h *env) frames(ctx context.Context, id turnkeeper.MessageID, after string, headers ...string) <-chan frame {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/messages/%d/events", h.base, id), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		h.t.Fatalf("the stream is answered %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	all := make(chan frame)
	go func() {
		defer close(all)
		defer func() { _ = resp.Body.Close() }()
		var f frame
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "id":
				f.id = value
			case "event":
				f.kind = value
			case "data":
				f.raw = value
				_ = json.Unmarshal([]byte(value), &f.data)
			case "":
				if f.kind == "" {
					continue
				}
				select {
				case all <- f:
				case <-ctx.Done():
					return
				}
				f = frame{}
			}
		}
	}()
	return all
}

func (h *env) next(frames <-chan frame, kind string) frame {
	h.t.Helper()
	f, open := <-frames
	if !open || f.kind != kind {
		h.t.Fatalf("event %s %s came, want %s", f.kind, f.raw, kind)
	}
	return f
}

// TestAMessageIsWatched follows a message from its wait to its reply, with a token that may only send.
func TestAMessageIsWatched(t *testing.T) {
	h := newEnv(t)
	sends := h.token(operate.Token{Name: "sends", Scopes: []string{"send"}})
	id, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "talk"})
	if err != nil {
		t.Fatal(err)
	}
	frames := h.frames(t.Context(), id, "", "Authorization", sends)
	if f := h.next(frames, "message_waiting"); f.id != "" || f.data.Data["waits"] == nil {
		t.Errorf("it waits as %s %s", f.id, f.raw)
	}
	d := h.dispatch("clerk")
	d.say("one")
	f := <-frames
	for f.kind == "message_waiting" {
		f = <-frames
	}
	if f.kind != "block_delta" || f.data.Data["text"] != "one" || f.data.TurnID != int64(d.id) {
		t.Errorf("then came %s %s", f.kind, f.raw)
	}
	d.finish("one")
	h.next(frames, "turn_complete")
	last := h.next(frames, "message_closed")
	if reply, ok := last.data.Data["reply"].(map[string]any); !ok || reply["body"] != "one" || last.data.Data["outcome"] != "succeeded" {
		t.Errorf("it ended with %s", last.raw)
	}
	if f, more := <-frames; more {
		t.Errorf("after the end came %s", f.raw)
	}
	h.ask("GET", fmt.Sprintf("/v1/messages/%d/events", id), "", "Last-Event-ID", last.id).want(t, http.StatusNoContent, "")
}
