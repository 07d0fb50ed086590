package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
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

// openStream opens the stream of a message after a position.
func (h *env) openStream(ctx context.Context, id turnkeeper.MessageID, after string, headers ...string) *http.Response {
	h.t.Helper()
	path := fmt.Sprintf("%s/v1/messages/%d/events", h.base, id)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
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
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		h.t.Fatalf("the stream is answered %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return resp
}

// frames opens the stream of a message after a position. It sends the events until the stream ends or ctx does.
func (h *env) frames(ctx context.Context, id turnkeeper.MessageID, after string, headers ...string) <-chan frame {
	h.t.Helper()
	resp := h.openStream(ctx, id, after, headers...)
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
	if reply, ok := last.data.Data["reply"].(map[string]any); !ok || reply["body"] != "one" ||
		last.data.Data["outcome"] != "succeeded" {
		t.Errorf("it ended with %s", last.raw)
	}
	if f, more := <-frames; more {
		t.Errorf("after the end came %s", f.raw)
	}
	h.ask("GET", fmt.Sprintf("/v1/messages/%d/events", id), "", "Last-Event-ID", last.id).want(t,
		http.StatusNoContent, "")
}

// checkEvent validates an event against the document.
func (d document) checkEvent(t *testing.T, f frame) {
	t.Helper()
	d.check(t, "GET", "/v1/messages/{id}/events", answer{
		status: 200, header: http.Header{"Content-Type": {"text/event-stream"}}, body: []byte("data: " + f.raw + "\n"),
	})
}

// sendAs puts a message into an agent's inbox.
func (h *env) sendAs(user, agent, body string) turnkeeper.MessageID {
	h.t.Helper()
	id, err := h.Enqueue(h.t.Context(), turnkeeper.Submission{Agent: agent, User: user, Body: body})
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// stored reads frames until the stream ends, without those of message_waiting, which are not stored.
func stored(frames <-chan frame) (all []frame) {
	for f := range frames {
		if f.kind != "message_waiting" {
			all = append(all, f)
		}
	}
	return all
}

func kinds(frames []frame) (all []string) {
	for _, f := range frames {
		all = append(all, f.kind)
	}
	return all
}

// fail ends the turn so that another one tries again at once.
func (d *dispatch) fail() {
	d.t.Helper()
	d.write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnError, Data: []byte(`{"state":"failed","retry":true}`)}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			Error: "away", Retry: true, Counted: true},
	}, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished"})
}

func (d *dispatch) event(kind turnkeeper.EventType, data string) {
	d.t.Helper()
	d.write(turnlog.Entry{Events: []turnkeeper.Event{{Type: kind, Round: 1, Block: 1, Data: []byte(data)}}},
		turnlog.Consequence{})
}

// TestAMessageIsWatchedOverItsAttempts watches a message whose first turn fails, and resumes after each of the events.
func TestAMessageIsWatchedOverItsAttempts(t *testing.T) {
	h := newEnv(t)
	id := h.sendAs("", "clerk", "talk")
	first := h.dispatch("clerk")
	live := h.frames(t.Context(), id, "")
	first.say("wrong")
	first.fail()
	second := h.dispatch("clerk")
	second.say("ri")
	second.say("ght")
	second.finish("right")
	all := stored(live)
	want := []string{"block_delta", "turn_error", "block_delta", "block_delta", "turn_complete", "message_closed"}
	if diff := cmp.Diff(want, kinds(all)); diff != "" {
		t.Fatal(diff)
	}
	if all[1].data.Data["retry"] != true || all[1].data.TurnID != int64(first.id) ||
		all[2].data.TurnID != int64(second.id) {
		t.Errorf("the first attempt ended with %s, and then came %s", all[1].raw, all[2].raw)
	}
	for i, f := range all[:len(all)-1] {
		rest := stored(h.frames(t.Context(), id, f.id))
		if diff := cmp.Diff(kinds(all[i+1:]), kinds(rest)); diff != "" || len(rest) > 0 && rest[0].id != all[i+1].id {
			t.Errorf("after %s, %s: %s", f.id, f.kind, diff)
		}
	}
	again := h.ask("GET", fmt.Sprintf("/v1/messages/%d/events?after=%s", id, all[3].id), "")
	if n := strings.Count(string(again.body), "event: "); n != 2 {
		t.Errorf("after= gave %d events: %s", n, again.body)
	}
}

// TestWhatSendersAreShown compares what tokens with send and read get of each type of event.
func TestWhatSendersAreShown(t *testing.T) {
	h := newEnv(t)
	sends := h.token(operate.Token{Name: "sends", Scopes: []string{"send"}})
	reads := h.token(operate.Token{Name: "reads", Scopes: []string{"read"}})
	d := h.turn("clerk", "talk")
	d.event(turnkeeper.EventTurnStart,
		`{"trigger":"message","agent":"clerk","message_id":1,"attempt":1,"parent":{"turn_id":7,"call":"SECRET","root_turn_id":7}}`)
	d.event(turnkeeper.EventBlockDelta, `{"thinking":"SECRET"}`)
	d.event(turnkeeper.EventBlockDelta, `{"arguments":"SECRET"}`)
	d.event(turnkeeper.EventBlockDelta, `{"text":"SECRET","guarded":true}`)
	d.event(turnkeeper.EventBlockDelta, `{"text":"shown"}`)
	d.event(turnkeeper.EventBlockStart, `{"kind":"tool_use","tool":"SECRET","unknown":true}`)
	d.event(turnkeeper.EventToolStarted, `{"call":"round-1-tool-1","name":"look","state":"started"}`)
	d.event(turnkeeper.EventToolResult,
		`{"call":"round-1-tool-1","name":"look","state":"succeeded","preview":"SECRET","duration_ms":5,"sub_agent":{"agent":"SECRET","conversation":"main"}}`)
	d.event(turnkeeper.EventToolResult,
		`{"call":"round-1-tool-2","name":"SECRET","unknown":true,"state":"denied","preview":"SECRET"}`)
	d.event(turnkeeper.EventNotice, `{"text":"SECRET"}`)
	d.event(turnkeeper.EventRoundStop,
		`{"model":"SECRET","calls":2,"usage":{"input_tokens":77001,"output_tokens":1,"cached_tokens":0,"reasoning_tokens":0,"estimated":false}}`)
	d.event(turnkeeper.EventRoundRollback, `{"reason":"SECRET"}`)
	d.event(turnkeeper.EventAskOpened,
		`{"ask":"approve round-1-tool-1","kind":"approve","call":"round-1-tool-1","tool":"pay","state":"open","reason":"SECRET"}`)
	d.event(turnkeeper.EventTurnWaiting,
		`{"reasons":["person"],"for":"a person","calls":[],"asks":["approve round-1-tool-1"],"models":["SECRET"]}`)
	d.event(turnkeeper.EventAskClosed,
		`{"ask":"approve round-1-tool-1","kind":"approve","call":"round-1-tool-1","tool":"pay","state":"approved","reason":"SECRET"}`)
	d.event("of_a_later_release", `{"text":"SECRET"}`)
	d.write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete,
			Data: []byte(`{"state":"succeeded","stop_reason":"none","rounds":1,"calls":2,"reply":"SECRET"}`)}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "approved"},
	}, turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "finished"})
	id := turnkeeper.MessageID(one[int64](h, "select message_id from turnkeeper.turns where id = $1", d.id))
	read, sent := stored(h.frames(t.Context(), id, "", "Authorization", reads)),
		stored(h.frames(t.Context(), id, "", "Authorization", sends))
	if len(read) != 18 || !strings.Contains(read[1].raw, "SECRET") {
		t.Errorf("who may read got %d events: %v", len(read), kinds(read))
	}
	want := []string{
		"turn_start", "block_delta", "block_start", "tool_started", "tool_result", "tool_result", "round_stop",
		"round_rollback", "ask_opened", "turn_waiting",
		"ask_closed", "turn_complete", "message_closed",
	}
	if diff := cmp.Diff(want, kinds(sent)); diff != "" {
		t.Fatalf("who may send: %s", diff)
	}
	document := readDocument(t, h.ask("GET", "/openapi.json", "").body)
	for _, f := range slices.Concat(read, sent) {
		if f.kind != "of_a_later_release" {
			document.checkEvent(t, f)
		}
	}
	for _, f := range sent {
		if strings.Contains(f.raw, "SECRET") || strings.Contains(f.raw, "77001") {
			t.Errorf("who may send got %s", f.raw)
		}
	}
	for i, part := range map[int]string{1: `"text":"shown"`, 3: `"name":"look"`, 4: `"duration_ms":5`,
		5: "(unknown tool)", 8: "approve round-1-tool-1", 10: `"state":"approved"`, 12: "approved"} {
		if !strings.Contains(sent[i].raw, part) {
			t.Errorf("who may send got %s, want %s", sent[i].raw, part)
		}
	}
}

// TestPositionsOfAMessage refuses ids of events of other messages and texts that are none, and accepts those of the
// future.
func TestPositionsOfAMessage(t *testing.T) {
	h := newEnv(t)
	one, other := h.turn("clerk", "one"), h.turn("desk", "other")
	one.finish("1")
	other.finish("2")
	path := func(id turnkeeper.TurnID) string {
		return fmt.Sprintf("/v1/messages/%d/events", storagetest.One[int64](h.DB,
			"select message_id from turnkeeper.turns where id = $1", int64(id)))
	}
	for _, cursor := range []string{fmt.Sprintf("%d.1", other.id), "987654321.1"} {
		h.ask("GET", path(one.id), "", "Last-Event-ID", cursor).want(t, 400,
			"the event with this id belongs to another message")
	}
	for _, cursor := range []string{"x", "1", "-1.2", "1.-2", "01.2", "1.2.3", "1.99999999999999999999", "."} {
		h.ask("GET", path(one.id), "", "Last-Event-ID", cursor).want(t, 400, "Last-Event-ID must be the id of an event")
		h.ask("GET", path(one.id)+"?after="+cursor, "").want(t, 400, "after must be the id of an event")
	}
	h.ask("GET", "/v1/messages/987654321/events", "", "Accept", "text/event-stream").want(t, 404, "there is no message")
	last := h.ask("GET", path(one.id), "", "Last-Event-ID", fmt.Sprintf("%d.%d", one.id, int64(1)<<40))
	if text := string(last.body); !strings.Contains(text, "message_closed") || strings.Contains(text, "turn_complete") {
		t.Errorf("after the newest event came %s", text)
	}
	if a := h.ask("HEAD", path(one.id), ""); a.status != 200 || len(a.body) > 0 ||
		a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD is answered %d %s", a.status, a.body)
	}
}

// TestAMessageIsClosedWhileItIsWatched closes messages before they have run, and purges one whose stream is read
// slowly.
func TestAMessageIsClosedWhileItIsWatched(t *testing.T) {
	h := newEnv(t)
	id := h.sendAs("", "clerk", "never mind")
	frames := h.frames(t.Context(), id, "")
	h.next(frames, "message_waiting")
	if _, err := h.CancelMessage(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	all := stored(frames)
	if len(all) == 0 || all[len(all)-1].kind != "message_closed" || all[len(all)-1].data.Data["state"] != "cancelled" {
		t.Fatalf("it was cancelled: %v", all)
	}

	// The events of a turn that has ended may be deleted before its message.
	h.Exec("delete from turnkeeper.journal")
	if late := kinds(stored(h.frames(t.Context(), id, ""))); !slices.Equal(late, []string{"message_closed"}) {
		t.Errorf("without stored events came %v", late)
	}

	scheduled, _, err := h.RunSchedule(t.Context(), "desk", "daily")
	if err != nil {
		t.Fatal(err)
	}
	d := h.dispatch("desk")
	d.say("hm")
	d.finish("")
	all = stored(h.frames(t.Context(), scheduled, ""))
	if last := all[len(all)-1]; last.kind != "message_closed" || last.data.Data["reply"] != nil ||
		last.data.Data["outcome"] != "succeeded" {
		t.Errorf("the message of a schedule ended with %s", last.raw)
	}
}

// TestAPurgedMessage checks that the stream of a message that is purged ends, without a last event.
func TestAPurgedMessage(t *testing.T) {
	h := newEnv(t)
	id := h.sendAs("", "clerk", "talk")
	frames := h.frames(t.Context(), id, "")
	h.next(frames, "message_waiting")
	h.Exec("set session_replication_role = replica; delete from turnkeeper.messages")
	if rest := stored(frames); len(rest) != 0 {
		t.Errorf("after the purge came %v", rest)
	}
	h.ask("GET", fmt.Sprintf("/v1/messages/%d/events", id), "").want(t, 404, "there is no message")
}

// TestReasonsToWaitInAStream checks that a new reason is sent, and that what is for operators is left out.
func TestReasonsToWaitInAStream(t *testing.T) {
	h := newEnv(t)
	sends := h.token(operate.Token{Name: "sends", Scopes: []string{"send"}})
	id := h.sendAs("", "clerk", "talk")
	frames := h.frames(t.Context(), id, "", "Authorization", sends)
	h.next(frames, "message_waiting")
	if err := h.PauseScheduler(t.Context(), "SECRET"); err != nil {
		t.Fatal(err)
	}
	document := readDocument(t, h.ask("GET", "/openapi.json", "").body)
	for f := range frames {
		document.checkEvent(t, f)
		if strings.Contains(f.raw, "SECRET") {
			t.Errorf("who may send got %s", f.raw)
		}
		if strings.Contains(f.raw, "scheduler_paused") {
			break
		}
	}
	if err := h.ResumeScheduler(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.dispatch("clerk").write(turnlog.Entry{
		Asks: []asks.Question{approval("SECRET")}, Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting},
	}, turnlog.Consequence{Log: "waiting"})
	for f := range frames {
		if strings.Contains(f.raw, "SECRET") {
			t.Errorf("who may send got %s", f.raw)
		}
		if f.kind == "message_waiting" && strings.Contains(f.raw, `"reason":"person"`) {
			break
		}
	}
}

// TestOneReadForAllWhoWatchMessages checks that many clients that watch waiting messages cause as few queries as one.
func TestOneReadForAllWhoWatchMessages(t *testing.T) {
	store := &counted{}
	h := newEnv(t)
	const watchers = 200
	_, h.base = h.serveUpTo(watchers+10, func(c *httpapi.Config) { store.Store, c.Store = c.Store, store })
	ids := []turnkeeper.MessageID{h.sendAs("", "clerk", "one"), h.sendAs("", "clerk", "two")}
	var all []<-chan frame
	for i := range watchers {
		all = append(all, h.frames(t.Context(), ids[i%2], ""))
		h.next(all[i], "message_waiting")
	}
	before, began := store.looks.Load(), time.Now()
	for _, id := range ids {
		if _, err := h.CancelMessage(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
	}
	for i, frames := range all {
		if got := stored(frames); len(got) == 0 || got[len(got)-1].kind != "message_closed" {
			t.Errorf("watcher %d saw %v", i, kinds(got))
		}
	}
	// At most one look in 100 ms.
	if looks, most := store.looks.Load()-before, int64(time.Since(began)/(100*time.Millisecond))+2; looks > most {
		t.Errorf("%d looks at messages in %s", looks, time.Since(began))
	}
}

// TestASlowClientOfAMessage checks that a client that does not read delays no other.
func TestASlowClientOfAMessage(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "talk")
	id := turnkeeper.MessageID(one[int64](h, "select message_id from turnkeeper.turns where id = $1", d.id))
	defer h.stuck(fmt.Sprintf("/v1/messages/%d/events", id))()
	long := fmt.Sprintf("%08000d", 0)
	for range 500 { // more than the network buffers hold
		d.say(long)
	}
	d.finish("said")
	if all := stored(h.frames(t.Context(), id, "")); len(all) != 502 {
		t.Errorf("another client saw %d events", len(all))
	}
}

// TestEachTypeOfEventIsClassified checks that every type of event is a row of views.EventRows, so that somebody has
// decided who sees it.
func TestEachTypeOfEventIsClassified(t *testing.T) {
	t.Parallel()
	listed := map[turnkeeper.EventType]int{}
	for _, row := range views.EventRows {
		listed[row.Type]++
	}
	for _, kind := range eventTypes(t, "../event.go", "../stream/message.go", "../agentturn/turnevents/events.go") {
		if listed[kind] != 1 {
			t.Errorf("%s has %d rows in views.EventRows, want one", kind, listed[kind])
		}
		delete(listed, kind)
	}
	for kind := range listed {
		t.Errorf("no constant has the type %s", kind)
	}
}

// eventTypes returns the constants of type EventType in files.
func eventTypes(t *testing.T, files ...string) (all []turnkeeper.EventType) {
	t.Helper()
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type == nil || len(spec.Values) != 1 {
				return true
			}
			named := fmt.Sprint(spec.Type)
			if selected, is := spec.Type.(*ast.SelectorExpr); is {
				named = selected.Sel.Name
			}
			if text, is := spec.Values[0].(*ast.BasicLit); is && named == "EventType" {
				all = append(all, turnkeeper.EventType(strings.Trim(text.Value, `"`)))
			}
			return true
		})
	}
	if len(all) < 16 {
		t.Fatalf("found only %d types of events", len(all))
	}
	return all
}

// TestAMessagesStreamNeverEndsEarlyAsIfItWereComplete checks that a stream without its last event ends with a
// connection error, wherever it ends.
func TestAMessagesStreamNeverEndsEarlyAsIfItWereComplete(t *testing.T) {
	isAway := func(c *httpapi.Config) { c.Store = away{c.Store} }
	token := []string{"Authorization", "Bearer tk_some", "Accept", "text/event-stream"}
	for _, c := range []struct {
		name    string
		change  func(*httpapi.Config)
		stop    bool // before the request
		headers []string
	}{
		{name: "the process stops", change: func(*httpapi.Config) {}},
		{name: "the process has been told to stop", change: func(*httpapi.Config) {}, stop: true},
		{name: "the database is away", change: isAway},
		{name: "the database is away at the login", change: isAway, headers: token},
		{name: "the database hangs", change: func(c *httpapi.Config) {
			c.Store, c.QueryTimeout = hanging{c.Store}, 50*time.Millisecond
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newEnv(t, c.change)
			id := h.sendAs("", "clerk", "talk")
			if c.stop {
				h.server.Drain()
			}
			resp := h.openStream(t.Context(), id, "", c.headers...)
			defer func() { _ = resp.Body.Close() }()
			h.server.Drain()
			if body, err := io.ReadAll(resp.Body); err == nil || !strings.HasPrefix(string(body), "retry: ") {
				t.Errorf("the stream ended with %v after %q", err, body)
			}
		})
	}
}

// TestAMessageIsWatchedWhileTheProcessStops checks that the client goes on at another process.
func TestAMessageIsWatchedWhileTheProcessStops(t *testing.T) {
	h := newEnv(t)
	id := h.sendAs("", "clerk", "talk")
	h.server.Drain()
	_, h.base = h.serve()
	frames := h.frames(t.Context(), id, "")
	h.next(frames, "message_waiting")
	h.dispatch("clerk").finish("said")
	if all := stored(frames); len(all) == 0 || all[len(all)-1].kind != "message_closed" {
		t.Errorf("the other process sent %v", kinds(all))
	}
}
