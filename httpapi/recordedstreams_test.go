package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// A happening is an event of a turn, and when it is written, from the begin of the request.
type happening struct {
	at    time.Duration
	turn  turnkeeper.TurnID
	kind  turnkeeper.EventType
	block int
	data  string
}

// life is what happens to a message: its first turn fails, and the second one answers it.
var life = []happening{
	{310 * time.Millisecond, 11, turnkeeper.EventTurnStart, 0, `{}`}, {350 * time.Millisecond, 11,
		turnkeeper.EventRoundStart, 0, `{"model":"m"}`},
	{360 * time.Millisecond, 11, turnkeeper.EventBlockStart, 1, `{"kind":"text"}`}, {370 * time.Millisecond, 11,
		turnkeeper.EventBlockDelta, 1, `{"text":" I look "}`},
	{1370 * time.Millisecond, 11, turnkeeper.EventBlockDelta, 1, `{"text":" it up. "}`}, {1380 * time.Millisecond, 11,
		turnkeeper.EventBlockStop, 1, `{}`},
	{1390 * time.Millisecond, 11, turnkeeper.EventBlockStart, 2, `{"kind":"reasoning"}`}, {1390 * time.Millisecond, 11,
		turnkeeper.EventBlockDelta, 2, `{"reasoning":"hm"}`},
	{1400 * time.Millisecond, 11, turnkeeper.EventToolStarted, 3,
		`{"call":"round-1-tool-1","name":"read_file","arguments":{"of":"a"}}`},
	{2710 * time.Millisecond, 11, turnkeeper.EventToolResult, 3,
		`{"call":"round-1-tool-1","name":"read_file","state":"succeeded","preview":"private"}`},
	{2720 * time.Millisecond, 11, turnkeeper.EventNotice, 0, `{"text":"a notice"}`}, {2730 * time.Millisecond, 11,
		turnkeeper.EventBlockDelta, 4, `{"text":"Half"}`},
	{2740 * time.Millisecond, 11, turnkeeper.EventTurnError, 0, `{"error_class":"overloaded","retry":true}`},
	{5110 * time.Millisecond, 12, turnkeeper.EventTurnStart, 0, `{}`}, {5120 * time.Millisecond, 12,
		turnkeeper.EventBlockDelta, 1, `{"text":"The "}`},
	{5130 * time.Millisecond, 12, turnkeeper.EventRoundRollback, 0, `{"round":1}`}, {5140 * time.Millisecond, 12,
		turnkeeper.EventBlockDelta, 2, `{"text":"The answer"}`},
	{7150 * time.Millisecond, 12, turnkeeper.EventTurnComplete, 0, `{"state":"succeeded"}`},
}

// over is when the message of life is closed.
const over = 7150 * time.Millisecond

// A play is a stream that is recorded while the message of life is handled.
type play struct {
	name  string
	asked asked
	past  time.Duration                                  // how long ago life began
	away  func(since time.Duration, method string) error // what the store returns; nil: no error
	then  func(r *recording, leave context.CancelFunc)   // runs beside the request; nil: nothing does
	stops bool                                           // the process has begun to stop before the request
}

// stage returns a recording whose store is life's.
func stage(t *testing.T, p play) *recording {
	r := newRecording(t, func(c *httpapi.Config) { c.KeepAlive, c.Observe, c.Streams = 2030*time.Millisecond, nil, 1 })
	began := time.Now().Add(-p.past)
	since := func() time.Duration { return time.Since(began) }
	r.store.events = func(turn turnkeeper.TurnID) (all []turnkeeper.Event) {
		for _, h := range life {
			if h.turn == turn && h.at <= since() {
				all = append(all, turnkeeper.Event{
					TurnID: turn, Seq: int64(len(all) + 1), Type: h.kind, Round: 1, Block: h.block,
					Data: []byte(h.data), At: zeroTime.Add(h.at),
				})
			}
		}
		return all
	}
	r.store.states = func(id turnkeeper.MessageID) waiting.Message { return watched(id, since()) }
	r.store.goesOn = func(to *operate.Response) {
		if id := to.Message.ID; id == 1 || id == 2 {
			to.Drafts, to.Message.Attempts = id == 2, 0
			if since() >= life[0].at {
				to.Message.Attempts = 1
			}
			if since() >= over {
				to.Outcome, to.Reply, to.Finish, to.Message.ClosedAt = turnkeeper.TurnSucceeded, "The answer is "+
					strings.Repeat("é", 700), "stop", zeroTime.Add(over)
			}
		}
	}
	if p.away != nil {
		r.store.before = func(_ context.Context, _ int, method string) error { return p.away(since(), method) }
	}
	return r
}

// watched returns the state of life's message.
func watched(id turnkeeper.MessageID, since time.Duration) waiting.Message {
	m := waiting.Message{Message: turnkeeper.Message{ID: id, Agent: "clerk", User: "anna",
		State: turnkeeper.MessageWaiting}}
	held := waiting.Wait{
		Reason: waiting.LaneHeld, Lane: "clerk", Turn: 7, State: turnkeeper.TurnRunning, Worker: "worker-1",
		Why: "a secret of bert's", Silent: since, Since: zeroTime.Add(since),
	}
	switch {
	case since >= over:
		m.State, m.ClosedAt, m.Turns, m.TurnID = turnkeeper.MessageSucceeded, zeroTime.Add(over),
			[]turnkeeper.TurnID{11, 12}, 12
	case since >= 5110*time.Millisecond:
		m.State, m.Turns, m.TurnID = turnkeeper.MessageRunning, []turnkeeper.TurnID{11, 12}, 12
	case since >= 2740*time.Millisecond:
		m.Turns, m.TurnID, m.Waits = []turnkeeper.TurnID{11}, 11, []waiting.Wait{{Reason: waiting.LaneBackoff,
			Lane: "clerk", Until: zeroTime.Add(time.Minute), Count: 1, Why: "overloaded"}}
	case since >= 310*time.Millisecond:
		m.State, m.Turns, m.TurnID = turnkeeper.MessageRunning, []turnkeeper.TurnID{11}, 11
	default:
		m.Waits = []waiting.Wait{held}
	}
	return m
}

// perform records a play: each write, when it was made, and how the stream ended.
func perform(t *testing.T, text *strings.Builder, p play) {
	synctest.Test(t, func(t *testing.T) {
		r := stage(t, p)
		began := time.Now()
		ctx, leave := context.WithTimeout(t.Context(), 5*time.Minute)
		defer leave()
		if p.stops {
			r.api.Drain()
		}
		if p.then != nil {
			go p.then(r, leave)
		}
		a := p.asked
		if a.method == "" {
			a.method = "GET"
		}
		fmt.Fprintf(text, "=== %s: %s %s %s %s %s\n", p.name, a.method, a.path, a.as, a.body,
			strings.Join(a.headers, " "))
		w := r.doAlone(ctx, a)
		fmt.Fprintf(text, "%d after %s\n%s%s\n", w.Code, time.Since(began), headersOf(w.Header()), w.timeline())
		for _, entry := range r.logs.TakeAll() {
			fmt.Fprintf(text, "log: %s %v\n", entry.Message, entry.ContextMap())
		}
		text.WriteString("\n")
		<-time.After(5 * time.Minute) // what is left behind keeps the bubble from its end
	})
}

// timeline returns the writes of an answer and its other notes, with the time of each that comes later than the one
// before.
func (w *timedWriter) timeline() string {
	var b strings.Builder
	var last time.Duration
	for _, n := range w.lines {
		if n.at != last {
			fmt.Fprintf(&b, "[%s]\n", n.at)
		}
		last = n.at
		b.WriteString(shortened(strings.TrimRight(n.text, "\n")) + "\n")
	}
	return b.String()
}

func sse(as, path string, headers ...string) asked {
	return asked{as: as, method: "GET", path: path,
		headers: append([]string{"Accept", "text/event-stream"}, headers...)}
}

// drains stops the process some time after the request.
func drains(after time.Duration) func(*recording, context.CancelFunc) {
	return func(r *recording, _ context.CancelFunc) { <-time.After(after); r.api.Drain() }
}

func leaves(after time.Duration) func(*recording, context.CancelFunc) {
	return func(_ *recording, leave context.CancelFunc) { <-time.After(after); leave() }
}

// without fails one method of the store between two times.
func without(method string, from, to time.Duration, err error) func(time.Duration, string) error {
	return func(since time.Duration, called string) error {
		if called == method && since >= from && since < to {
			return err
		}
		return nil
	}
}

const ever = time.Hour

// TestStreamsAreRecorded records the streams of a turn and of a message: each write with its time and its deadline.
func TestStreamsAreRecorded(t *testing.T) {
	t.Parallel()
	const turn, message = "/v1/turns/11/events", "/v1/messages/1/events"
	const late = 3 * time.Second
	var text strings.Builder
	for _, p := range []play{
		{name: "all of it", asked: sse("", turn)},
		{name: "from the query", asked: sse("read", turn+"?after=10")},
		{name: "from the header", asked: sse("", turn+"?after=2", "Last-Event-ID", "11")},
		{name: "it is over", asked: sse("", turn, "Last-Event-ID", "13"), past: ever},
		{name: "beyond the newest", asked: sse("", turn, "Last-Event-ID", "99"), past: ever},
		{name: "no number", asked: sse("", turn, "Last-Event-ID", "x")},
		{name: "the head", asked: asked{method: "HEAD", path: turn, headers: []string{"Accept", "text/event-stream"}}},
		{name: "a list", asked: asked{path: turn}, past: late}, {name: "a part of the list",
			asked: asked{path: turn + "?after=2&limit=2"}, past: late},
		{name: "the list after its end", asked: asked{path: turn + "?after=13"}, past: late},
		{name: "a bad list", asked: asked{path: turn + "?limit=1001"}, past: late},
		{name: "weighed", asked: asked{path: turn, headers: []string{"Accept",
			"text/event-stream;q=0, application/json"}}, past: late},
		{name: "the process stops", asked: sse("", turn), then: drains(1500 * time.Millisecond)},
		{name: "the process has stopped", asked: sse("", turn), past: 1500 * time.Millisecond, stops: true},
		{name: "the client leaves", asked: sse("", turn), then: leaves(1500 * time.Millisecond)},
		{name: "an unknown turn", asked: sse("", "/v1/turns/100/events")}, {name: "another agent's",
			asked: sse("desk", turn)},
		{name: "who may not", asked: sse("send", turn)}, {name: "the database is away", asked: sse("", turn),
			away: without("WhoseTurn", 0, ever, errAway)},
		{name: "the database is away meanwhile", asked: sse("", turn), away: without("Events", time.Second,
			4*time.Second, errAway)},
		{name: "the turn is purged", asked: sse("", "/v1/turns/13/events"), away: without("WhoseTurn", time.Second,
			ever, turnkeeper.ErrNotFound)},
		{name: "a message", asked: sse("", message)}, {name: "a message for a sender", asked: sse("send", message)},
		{name: "a message for a user", asked: sse("anna", message)}, {name: "a message from its middle",
			asked: sse("", message, "Last-Event-ID", "11.12")},
		{name: "a message from its second turn", asked: sse("", message+"?after=12.2"), past: late},
		{name: "a message from its end", asked: sse("", "/v1/messages/3/events?after=end"), past: ever},
		{name: "an open message from its end", asked: sse("", message+"?after=end")},
		{name: "a message from a turn of another", asked: sse("", message+"?after=99.1"), past: late},
		{name: "a message from nowhere", asked: sse("", message+"?after=x")}, {name: "the head of a message",
			asked: asked{method: "HEAD", path: message}},
		{name: "a message, and the process stops", asked: sse("", message), then: drains(1500 * time.Millisecond)},
		{name: "a message, and the process has stopped", asked: sse("", message), stops: true},
		{name: "a message, and the client leaves", asked: sse("", message), then: leaves(1500 * time.Millisecond)},
		{name: "a message, and the database is away", asked: sse("", message), away: without("Message", 0,
			ever, errAway)},
		{name: "a message, and its state is away meanwhile", asked: sse("", message), away: without("WatchedMessages",
			time.Second, 6*time.Second, errAway)},
		{name: "a message, and its reply is away", asked: sse("", message), away: without("WaitingMessage", 0,
			ever, errAway)},
		{name: "a message of another", asked: sse("desk", message)}, {name: "an unknown message",
			asked: sse("", "/v1/messages/100/events")},
	} {
		perform(t, &text, p)
	}
	golden.File(t, "testdata/streams.txt", text.String())
}

// TestStreamsOfResponsesAreRecorded records the streams of the Responses API, with drafts and without.
func TestStreamsOfResponsesAreRecorded(t *testing.T) {
	t.Parallel()
	const plain, drafts = "/v1/responses/resp_1", "/v1/responses/resp_2"
	create := func(body string, headers ...string) asked {
		return asked{method: "POST", path: "/v1/responses", body: body, headers: headers}
	}
	var text strings.Builder
	for _, p := range []play{
		{name: "a response", asked: asked{path: plain + "?stream=true"}},
		{name: "with drafts", asked: asked{path: drafts + "?stream=true"}},
		{name: "the rest", asked: asked{path: plain + "?stream=true&starting_after=4"}, past: ever},
		{name: "the rest of drafts", asked: asked{path: drafts + "?stream=true&starting_after=9"}, past: ever},
		{name: "after the end of drafts", asked: asked{path: drafts + "?stream=true&starting_after=99"}, past: ever},
		{name: "after the end", asked: asked{path: plain + "?stream=true&starting_after=99"}, past: ever},
		{name: "no stream", asked: asked{path: plain + "?starting_after=1"}},
		{name: "no number", asked: asked{path: plain + "?stream=true&starting_after=-1"}},
		{name: "not a flag", asked: asked{path: plain + "?stream=maybe"}},
		{name: "in the body", asked: asked{path: plain, body: `{"stream":true}`}, past: ever},
		{name: "a body that is none", asked: asked{path: plain, body: `[]`}},
		{name: "the head", asked: asked{method: "HEAD", path: plain + "?stream=true"}},
		{name: "of each outcome", asked: asked{path: "/v1/responses/resp_4?stream=true"}},
		{name: "failed", asked: asked{path: "/v1/responses/resp_5?stream=true"}},
		{name: "cancelled", asked: asked{path: "/v1/responses/resp_6?stream=true"}},
		{name: "the process stops", asked: asked{path: plain + "?stream=true"}, then: drains(1500 * time.Millisecond)},
		{name: "the process stops drafts", asked: asked{path: drafts + "?stream=true"},
			then: drains(1500 * time.Millisecond)},
		{name: "the client leaves", asked: asked{path: plain + "?stream=true"}, then: leaves(1500 * time.Millisecond)},
		{name: "the client leaves drafts", asked: asked{path: drafts + "?stream=true"},
			then: leaves(1500 * time.Millisecond)},
		{name: "it is purged", asked: asked{path: plain + "?stream=true"}, away: without("Response", time.Second, ever,
			turnkeeper.ErrNotFound)},
		{name: "the database is away meanwhile", asked: asked{path: plain + "?stream=true"}, away: without("Response",
			time.Second, 9*time.Second, errAway)},
		{name: "the end of drafts is away", asked: asked{path: drafts + "?stream=true"}, away: without("Response",
			time.Second, ever, errAway)},
		{name: "created", asked: create(`{"model":"clerk","input":"x","stream":true}`)},
		{name: "created with drafts", asked: create(`{"model":"clerk","input":"x","stream":true}`,
			"Turnkeeper-Drafts", "true")},
		{name: "created and waited for", asked: create(`{"model":"clerk","input":"x"}`)}, {name: "in the background",
			asked: create(`{"model":"clerk","input":"x","background":true}`)},
		{name: "waited for, and the process stops", asked: create(`{"model":"clerk","input":"x"}`),
			then: drains(1500 * time.Millisecond)},
		{name: "waited for with a key, and the process stops", asked: create(`{"model":"clerk","input":"x"}`,
			"Idempotency-Key", "k"), then: drains(1500 * time.Millisecond)},
		{name: "waited for, and the client leaves", asked: create(`{"model":"clerk","input":"x"}`),
			then: leaves(1500 * time.Millisecond)},
		{name: "cancelled by its sender", asked: asked{method: "POST", path: plain + "/cancel", as: "all"}},
		{name: "cancelled by another", asked: asked{method: "POST", path: plain + "/cancel", as: "send"}},
		{name: "cancelled, and it goes on", asked: asked{method: "POST", path: "/v1/responses/resp_8/cancel"}},
	} {
		perform(t, &text, p)
	}
	golden.File(t, "testdata/response_streams.txt", text.String())
}

// TestAStreamTooMany checks that a token has no more streams at once than its limit, each kind alike, and that one that
// ends makes room.
func TestAStreamTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := stage(t, play{})
		for _, path := range []string{"/v1/turns/11/events", "/v1/messages/1/events",
			"/v1/responses/resp_1?stream=true", "/v1/responses/resp_2?stream=true"} {
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); r.do(ctx, sse("all", path)) }()
			synctest.Wait()
			for _, other := range []string{"/v1/turns/11/events", "/v1/messages/1/events",
				"/v1/responses/resp_1?stream=true"} {
				if w := r.do(t.Context(), sse("all", other)); w.Code != http.StatusTooManyRequests ||
					w.Header().Get("Retry-After") != "10" {
					t.Errorf("beside %s, %s is answered %d %s", path, other, w.Code, w.Body)
				}
			}
			short, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if w := r.do(short, sse("read", "/v1/turns/11/events")); w.Code != http.StatusOK {
				t.Errorf("beside %s, another token is answered %d %s", path, w.Code, w.Body)
			}
			end()
			leave()
			<-ended
		}
	})
}
