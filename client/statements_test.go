package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/client"
)

// A statement is a DB that notes what it is asked, and fails.
type statement struct {
	text string
	args []any
	err  error
}

func (s *statement) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	s.text, s.args = sql, args
	return nil, s.err
}

func (s *statement) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	s.text, s.args = sql, args
	return failed{s.err}
}

type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// TestStatements checks which function of the database each call uses, with which arguments in which order, and that
// what is not given is null.
func TestStatements(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &statement{err: errors.New("away")}
	for _, c := range []struct {
		do       func() error
		function string
		args     string
	}{
		{func() error {
			_, err := client.Enqueue(t.Context(), s, turnkeeper.Submission{
				Agent: "clerk", User: "anna", Conversation: "main", Body: "work", Key: "key", Priority: -7,
				TraceParent: "00-trace", DueAt: due,
			})
			return err
		}, "turnkeeper.enqueue(", `["clerk","work","main","key",-7,"00-trace","2026-01-02T03:04:05Z","anna"]`},
		{func() error {
			_, err := client.Enqueue(t.Context(), s, turnkeeper.Submission{Agent: "clerk", Body: "work"})
			return err
		}, "turnkeeper.enqueue(", `["clerk","work","",null,0,null,null,""]`},
		{func() error { return client.Edit(t.Context(), s, 3, "other") }, "turnkeeper.edit_message(", `[3,"other"]`},
		{func() error { return client.Drop(t.Context(), s, 3) }, "turnkeeper.drop_message(", `[3]`},
		{func() error {
			_, err := client.Replies(t.Context(), s, 5, 9, client.Filter{Agent: "clerk", User: "anna"})
			return err
		}, "turnkeeper.my_replies_after(", `[5,9,"clerk","anna"]`},
		{func() error {
			_, err := client.AnswerAsk(t.Context(), s, 4, asks.Answer{
				Decision: asks.Approved, By: "ann", Channel: "chat", Comment: "go", Answer: "1",
				Edited: "{}", Hash: "hash",
			})
			return err
		}, "turnkeeper.answer_ask(", `[4,"approved","ann","chat","go","1","{}","hash"]`},
		{func() error {
			_, err := client.AnswerAsk(t.Context(), s, 4, asks.Answer{Decision: asks.Denied, By: "ann"})
			return err
		}, "turnkeeper.answer_ask(", `[4,"denied","ann",null,null,null,null,null]`},
	} {
		if err := c.do(); !errors.Is(err, s.err) {
			t.Errorf("%s: error %v", c.function, err)
		}
		args, err := json.Marshal(s.args)
		if err != nil || string(args) != c.args || !strings.Contains(s.text, c.function) {
			t.Errorf("it asks %s with %s, error %v; want %s with %s", s.text, args, err, c.function, c.args)
		}
	}
}

// TestConditions checks which error each condition of the database becomes, by each call, and that the details, which
// may quote rows, are dropped.
func TestConditions(t *testing.T) {
	t.Parallel()
	known := map[string]error{
		"TK003": turnkeeper.ErrEmptyMessage, "TK004": turnkeeper.ErrInvalidMessage, "TK005": turnkeeper.ErrUnknownAgent,
		"TK006": turnkeeper.ErrKeyConflict,
		"TK008": turnkeeper.ErrWrongState, "TK010": turnkeeper.ErrAgentRetired, "TK012": asks.ErrClosed,
		"TK013": turnkeeper.ErrNotFound, "TK014": asks.ErrInvalid,
	}
	for i := range 20 {
		code := fmt.Sprintf("TK%03d", i)
		server := &pgconn.PgError{Code: code, Message: "it says why", Detail: "a row"}
		s := &statement{err: fmt.Errorf("ask: %w", server)}
		for call, do := range map[string]func() error{
			"Enqueue": func() error {
				_, err := client.Enqueue(t.Context(), s, turnkeeper.Submission{Agent: "clerk", Body: "x"})
				return err
			},
			"Edit":      func() error { return client.Edit(t.Context(), s, 1, "x") },
			"Replies":   func() error { _, err := client.Replies(t.Context(), s, 0, 1, client.Filter{}); return err },
			"AnswerAsk": func() error { _, err := client.AnswerAsk(t.Context(), s, 1, asks.Answer{}); return err },
		} {
			err := do()
			_, raw := errors.AsType[*pgconn.PgError](err)
			want := known[code]
			if want == nil && !errors.Is(err, server) || want != nil &&
				(!errors.Is(err, want) || raw || err.Error() != "it says why") {
				t.Errorf("%s of %s: %v, want %v", code, call, err, want)
			}
		}
	}
}

// TestEveryFieldOfAReply decodes the last event of a message, with a reply all of whose fields are set, and each
// event's own fields.
func TestEveryFieldOfAReply(t *testing.T) {
	t.Parallel()
	const whole = "id: 12.9\nevent: block_delta\ndata: {\"turn_id\":12,\"seq\":9,\"type\":\"block_delta\",\"round\":3,\"block\":4,\"data\":{\"text\":\"Hi\"},\"at\":\"2026-01-02T03:04:05Z\"}\n\n"
	const reply = "id: end\ndata: {\"type\":\"message_closed\",\"data\":{\"reply\":{\"id\":3,\"message_id\":1,\"turn_id\":12,\"agent\":\"clerk\",\"user\":\"anna\",\"conversation\":\"main\"," +
		"\"outcome\":\"degraded\",\"body\":\"Hello\",\"stop_reason\":\"max_rounds\",\"error_class\":\"odd\",\"labels\":[\"private\"],\"created_at\":\"2026-01-02T03:04:06Z\",\"parent_turn_id\":7," +
		"\"calls\":[{\"ordinal\":1,\"id\":\"round-2-tool-3\",\"name\":\"pay\",\"effect\":\"once\",\"state\":\"failed\",\"duration_ms\":1200,\"error\":\"no\"}," +
		"{\"ordinal\":2,\"id\":\"round-2-tool-4\",\"name\":\"read\",\"effect\":\"none\",\"state\":\"skipped\"}]}}}\n\n"
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	server := &api{answers: []*http.Response{streams(whole, reply)}}
	var got []client.MessageEvent
	for e, err := range (client.Server{URL: "http://api.example", HTTP: &http.Client{Transport: server}}).Watch(
		t.Context(), 1, "11.8") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	want := client.MessageEvent{ID: "12.9", Event: turnkeeper.Event{
		TurnID: 12, Seq: 9, Type: turnkeeper.EventBlockDelta, Round: 3, Block: 4, Data: []byte(`{"text":"Hi"}`), At: at,
	}}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
	closing := &turnkeeper.Reply{
		ID: 3, MessageID: 1, TurnID: 12, Agent: "clerk", User: "anna", Conversation: "main",
		Outcome: turnkeeper.TurnDegraded, Body: "Hello", StopReason: turnkeeper.StopMaxRounds,
		ErrorClass: "odd", Labels: []string{"private"}, CreatedAt: at.Add(time.Second), ParentTurn: 7,
		Calls: []turnkeeper.ReplyCall{
			{
				Key: turnkeeper.CallKey{Round: 2, Ordinal: 3}, Ordinal: 1, Name: "pay", Effect: turnkeeper.EffectOnce,
				State:    turnkeeper.CallFailed,
				Duration: 1200 * time.Millisecond, Problem: "no",
			},
			{Key: turnkeeper.CallKey{Round: 2, Ordinal: 4}, Ordinal: 2, Name: "read", Effect: turnkeeper.EffectNone,
				State: turnkeeper.CallSkipped, Duration: -1},
		},
	}
	if diff := cmp.Diff(closing, got[1].Reply); diff != "" || got[1].ID != "end" {
		t.Errorf("the reply with id %s (-want +got):\n%s", got[1].ID, diff)
	}
	if want := []string{"http://api.example/v1/messages/1/events 11.8 "}; cmp.Diff(want, server.asked) != "" {
		t.Errorf("it asked %q", server.asked)
	}
}
