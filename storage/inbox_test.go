package storage_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

func TestEnqueueOrdersIds(t *testing.T) {
	h := newEnv(t)
	var last turnkeeper.MessageID
	for range 5 {
		id := h.Submit("clerk", "", "hello")
		if id <= last {
			t.Errorf("id %d after %d", id, last)
		}
		last = id
	}
	m, err := h.Message(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	if m.Conversation != "main" || m.Lane != "clerk" || m.State != turnkeeper.MessageWaiting ||
		m.Trigger != turnkeeper.TriggerMessage || m.Attempts != 0 {
		t.Errorf("accepted as %+v", m)
	}
	if m.DueAt.After(m.AcceptedAt) || m.DueAt.Nanosecond() != 0 {
		t.Errorf("due at %v, accepted at %v", m.DueAt, m.AcceptedAt)
	}
	if m, _ := h.Message(t.Context(), h.Submit("desk", "kitchen", "hello")); m.Lane != "desk/kitchen" {
		t.Errorf("lane is %s", m.Lane)
	}
}

func TestEnqueueKey(t *testing.T) {
	h := newEnv(t)
	first := turnkeeper.Submission{Agent: "clerk", Body: "pay 5", Key: "order-1"}
	id, err := h.Enqueue(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change func(*turnkeeper.Submission)
		same   bool
		want   error
	}{
		"the same again": {change: func(*turnkeeper.Submission) {}, same: true},
		"at another time": {change: func(s *turnkeeper.Submission) {
			s.DueAt = time.Now().Add(time.Hour)
		}, same: true},
		"with another priority": {change: func(s *turnkeeper.Submission) { s.Priority = 9 }, same: true},
		"named main":            {change: func(s *turnkeeper.Submission) { s.Conversation = "main" }, same: true},
		"another body": {change: func(s *turnkeeper.Submission) {
			s.Body = "pay 50"
		}, want: turnkeeper.ErrKeyConflict},
		"another conversation": {change: func(s *turnkeeper.Submission) {
			s.Conversation = "b"
		}, want: turnkeeper.ErrKeyConflict},
		"another agent": {change: func(s *turnkeeper.Submission) { s.Agent = "desk" }},
		"another key":   {change: func(s *turnkeeper.Submission) { s.Key = "order-2" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := first
			c.change(&s)
			got, err := h.Enqueue(t.Context(), s)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if err == nil && (got == id) != c.same {
				t.Errorf("id %d, the first was %d", got, id)
			}
		})
	}
	for _, d := range h.Dispatch("worker-1") {
		d.Finish(t, "done")
	}
	if again, err := h.Enqueue(t.Context(), first); err != nil || again != id {
		t.Errorf("a repeat after the work began: id %d, error %v", again, err)
	}
}

func TestEnqueueConcurrentDuplicates(t *testing.T) {
	h := newEnv(t)
	ids := make([]turnkeeper.MessageID, 100)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			id, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "once", Key: "k"})
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == 0 {
			t.Fatalf("ids %d and %d", ids[0], id)
		}
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.messages"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestEnqueueRefusals(t *testing.T) {
	h := newEnv(t)
	if err := h.SetMaxMessageBytes(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	ok := turnkeeper.Submission{Agent: "clerk", Body: "hello"}
	cases := map[string]struct {
		change func(*turnkeeper.Submission)
		want   error
		text   string
	}{
		"empty": {func(s *turnkeeper.Submission) {
			s.Body = ""
		}, turnkeeper.ErrEmptyMessage, "message cannot be empty"},
		"blank": {func(s *turnkeeper.Submission) {
			s.Body = " \n\t "
		}, turnkeeper.ErrEmptyMessage, "message cannot be empty"},
		"too long for the settings": {func(s *turnkeeper.Submission) {
			s.Body = strings.Repeat("ä", 501)
		}, turnkeeper.ErrInvalidMessage, "the body has 1002 bytes, the limit is 1000"},
		"NUL in the body": {func(s *turnkeeper.Submission) {
			s.Body = "a\x00b"
		}, turnkeeper.ErrInvalidMessage, "NUL"},
		"not UTF-8": {func(s *turnkeeper.Submission) {
			s.Body = "a\xffb"
		}, turnkeeper.ErrInvalidMessage, "not valid UTF-8"},
		"NUL in the conversation": {func(s *turnkeeper.Submission) {
			s.Conversation = "a\x00"
		}, turnkeeper.ErrInvalidMessage, "conversation"},
		"a key that is not UTF-8": {func(s *turnkeeper.Submission) {
			s.Key = "\xff"
		}, turnkeeper.ErrInvalidMessage, "idempotency key"},
		"a long key": {func(s *turnkeeper.Submission) {
			s.Key = strings.Repeat("k", 201)
		}, turnkeeper.ErrInvalidMessage, "200 bytes"},
		"a long conversation": {func(s *turnkeeper.Submission) {
			s.Conversation = strings.Repeat("k", 201)
		}, turnkeeper.ErrInvalidMessage, "200 bytes"},
		"too high a priority": {func(s *turnkeeper.Submission) {
			s.Priority = 1001
		}, turnkeeper.ErrInvalidMessage, "1001"},
		"an unknown agent": {func(s *turnkeeper.Submission) {
			s.Agent = "nobody"
		}, turnkeeper.ErrUnknownAgent, "the registered agents are clerk, desk"},
		"an impossible agent's name": {func(s *turnkeeper.Submission) {
			s.Agent = "../x"
		}, turnkeeper.ErrInvalidMessage, "../x"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := ok
			c.change(&s)
			id, err := h.Enqueue(t.Context(), s)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || id != 0 {
				t.Errorf("id %d, error %v; want %v with %q", id, err, c.want, c.text)
			}
		})
	}
	for name, s := range map[string]turnkeeper.Submission{
		"exactly at the limit": {Agent: "clerk", Body: strings.Repeat("ä", 500)},
		"bounds": {Agent: "clerk", Body: "x", Key: strings.Repeat("k", 200),
			Conversation: strings.Repeat("c", 200), Priority: -1000},
		"bad trace context": {Agent: "clerk", Body: "x", TraceParent: "00-\xff\x00"},
	} {
		if _, err := h.Enqueue(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.messages"); n != 3 {
		t.Errorf("%d messages, want the 3 that were accepted", n)
	}
}

// A secret is masked in a body, and refused in a name, because a masked name could not be found.
func TestNamesThatHoldASecret(t *testing.T) {
	h := newEnv(t)
	const secret = "hunter2-hunter2"
	store := storagetest.OpenWith(t, storage.Options{URL: h.URL, Mask: func(s string) string {
		return strings.ReplaceAll(s, secret, "[redacted]")
	}})
	for name, m := range map[string]turnkeeper.Submission{
		"conversation's name": {Agent: "clerk", Body: "x", Conversation: "about " + secret},
		"idempotency key":     {Agent: "clerk", Body: "x", Key: secret},
	} {
		_, err := store.Enqueue(t.Context(), m)
		_, err2 := store.AcceptResponse(t.Context(), operate.NewResponse{Submission: m})
		for _, err := range []error{err, err2} {
			if !errors.Is(err, turnkeeper.ErrInvalidMessage) || !strings.Contains(err.Error(), name) ||
				strings.Contains(err.Error(), secret) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	}
	id, err := store.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "about " + secret,
		Conversation: "c", Key: "k"})
	if m, err2 := store.Message(t.Context(), id); err != nil || err2 != nil || m.Body != "about [redacted]" || id != 1 {
		t.Errorf("message %d, %q; errors %v, %v", id, m.Body, err, err2)
	}
}

// The SQL function must check its arguments itself, because callers use it without the Go code.
func TestEnqueueBySQLRefuses(t *testing.T) {
	h := newEnv(t)
	if err := h.RetireAgent(t.Context(), "desk"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pool().Exec(t.Context(),
		"insert into turnkeeper.messages (agent, lane, body, idempotency_key, state, closed_at) values ('clerk', 'clerk', 'x', 'of another agent', 'cancelled', now())"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ sql, code string }{
		"null body":  {"select turnkeeper.enqueue('clerk', null)", "TK003"},
		"blank body": {`select turnkeeper.enqueue('clerk', E' \n\t')`, "TK003"},
		"too long":   {"select turnkeeper.enqueue('clerk', repeat('x', 65537))", "TK004"},
		"long key": {"select turnkeeper.enqueue('clerk', 'x', idempotency_key => repeat('x', 201))",
			"TK004"},
		"long conversation": {"select turnkeeper.enqueue('clerk', 'x', repeat('x', 201))", "TK004"},
		"priority":          {"select turnkeeper.enqueue('clerk', 'x', priority => 1001)", "TK004"},
		"too far ahead": {"select turnkeeper.enqueue('clerk', 'x', due_at => now() + interval '3661 days')",
			"TK004"},
		"never due":     {"select turnkeeper.enqueue('clerk', 'x', due_at => 'infinity')", "TK004"},
		"retired agent": {"select turnkeeper.enqueue('desk', 'x', idempotency_key => 'new')", "TK010"},
		"retired, known key": {"select turnkeeper.enqueue('desk', 'x', idempotency_key => 'of another agent')",
			"TK010"},
		"unknown agent": {"select turnkeeper.enqueue('nobody', 'x')", "TK005"},
		"null agent":    {"select turnkeeper.enqueue(null, 'x')", "TK005"},
		"key conflict itself": {
			"select turnkeeper.enqueue('clerk', v, idempotency_key => 'same') from (values ('a'), ('b')) t(v)",
			"TK006"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Pool().Exec(t.Context(), c.sql)
			if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != c.code {
				t.Errorf("error %v, want code %s", err, c.code)
			}
		})
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.messages"); n != 1 {
		t.Errorf("%d messages were written", n-1)
	}
}

func TestEnqueueInAnApplicationsTransaction(t *testing.T) {
	h := newEnv(t)
	h.Exec("create table orders (id bigint primary key, message_id bigint)")
	undone := errors.New("undone")
	for _, end := range []error{undone, nil} {
		err := pgx.BeginFunc(t.Context(), h.Pool(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(),
				"insert into orders values (1, turnkeeper.enqueue('clerk', 'order 1', idempotency_key => 'order-1'))"); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		want := 0
		if end == nil {
			want = 1
		}
		if n := storagetest.One[int](h,
			"select count(*) from turnkeeper.messages m join orders o on o.message_id = m.id"); n != want {
			t.Errorf("after %v: %d messages, want %d", end, n, want)
		}
	}
}

func TestOpenApplicationTransactionBlocksNobody(t *testing.T) {
	h := newEnv(t)
	running := h.Turn("runs already")
	tx, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(),
		"select turnkeeper.enqueue('clerk', 'not yet', idempotency_key => 'mine')"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), storagetest.Patience)
	defer cancel()
	if err := running.Append(ctx, turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{}); err != nil {
		t.Errorf("a step of a running turn: %v", err)
	}
	if err := running.Append(ctx, turnlog.Entry{Outcome: storagetest.Succeeded("done")},
		storagetest.Answered); err != nil {
		t.Errorf("the end of a running turn: %v", err)
	}
	if _, err := h.Enqueue(ctx, turnkeeper.Submission{Agent: "clerk", Body: "other"}); err != nil {
		t.Errorf("another message: %v", err)
	}
	if err := h.RegisterAgents(ctx, []turnkeeper.AgentRegistration{storagetest.Registration("clerk",
		true)}); err != nil {
		t.Errorf("a change of the agent: %v", err)
	}
	if all := h.Dispatch("worker-2"); len(all) != 1 || all[0].Record.Message.Body != "other" {
		t.Errorf("dispatched %d turns", len(all))
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := storagetest.One[int](h,
		"select count(*) from turnkeeper.messages where state = 'waiting' and body = 'not yet'"); n != 1 {
		t.Error("the application's message is not there after its commit")
	}
}

func TestListsOfTheInbox(t *testing.T) {
	h := newEnv(t)
	for range 130 {
		h.Submit("clerk", "", "x")
	}
	h.Submit("desk", "a", "y")
	for name, c := range map[string]struct {
		page  operate.Page
		count int
	}{
		"default":       {operate.Page{}, 25},
		"at most 100":   {operate.Page{Limit: 1000}, 100},
		"of one agent":  {operate.Page{Agent: "desk"}, 1},
		"of one state":  {operate.Page{State: "running"}, 0},
		"below an id":   {operate.Page{Limit: 100, Cursor: 11}, 10},
		"its last page": {operate.Page{Cursor: 1}, 0},
	} {
		got, err := h.Messages(t.Context(), c.page)
		if err != nil || len(got) != c.count {
			t.Errorf("%s: %d messages, error %v; want %d", name, len(got), err, c.count)
		}
		for i := 1; i < len(got); i++ {
			if got[i].ID >= got[i-1].ID {
				t.Fatalf("%s: not newest first", name)
			}
		}
	}
	if _, err := h.Message(t.Context(), 1<<40); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("an unknown id: %v", err)
	}
}

// TestAcceptTellsRepeats sends new and repeated messages. Only the same key for the same agent is a
// repetition.
func TestAcceptTellsRepeats(t *testing.T) {
	h := newEnv(t)
	ids := map[string]turnkeeper.MessageID{}
	for _, c := range []struct {
		agent, user, key string
		repeated         bool
	}{
		{"clerk", "", "a", false}, {"desk", "", "a", false}, {"desk", "", "b", false}, {"clerk", "", "b", false},
		{"desk", "anna", "a", false}, {"desk", "bert", "a", false},
		{"desk", "", "b", true}, {"clerk", "", "b", true}, {"clerk", "", "a", true}, {"desk", "", "a", true},
		{"desk", "bert", "a", true}, {"desk", "anna", "a", true},
		{"clerk", "", "", false}, {"clerk", "", "", false},
	} {
		id, repeated, err := h.Accept(t.Context(), turnkeeper.Submission{Agent: c.agent, User: c.user,
			Key: c.key, Body: "x"})
		if err != nil || repeated != c.repeated || (ids[c.agent+"@"+c.user+c.key] == id) != c.repeated {
			t.Errorf("to %s of %q with the key %q: message %d, repeated %t, error %v", c.agent, c.user, c.key, id,
				repeated, err)
		}
		ids[c.agent+"@"+c.user+c.key] = id
	}
}

// TestUnknownAgentIsToldOfTheKnown sends to an unknown agent while no agent is registered, and while
// two are.
func TestUnknownAgentIsToldOfTheKnown(t *testing.T) {
	h := &env{storagetest.Open(t, storagetest.URL(t))}
	for _, want := range []string{"no agent is registered yet", "the registered agents are clerk, desk"} {
		_, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "nobody", Body: "x"})
		if !errors.Is(err, turnkeeper.ErrUnknownAgent) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		h.Register("desk", true)
		h.Register("clerk", false)
	}
}

// A sender gets an error if it is unknown whether the message was accepted. The key makes a
// repetition safe.
func TestAnUnansweredEnqueue(t *testing.T) {
	for name, c := range map[string]struct {
		cut      storagetest.Cut
		accepted int
	}{"after the commit": {storagetest.Unanswer, 1}, "before the server has it": {storagetest.Lose, 0}} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			p, url := storagetest.NewProxy(t, h.URL)
			far := storagetest.Open(t, url)
			p.CutNext(c.cut, func(sent storagetest.Sent) bool { return sent.Has("name: Enqueue") })
			message := turnkeeper.Submission{Agent: "clerk", Body: "Hello", Key: "k"}
			_, err := far.Enqueue(t.Context(), message)
			if !storage.Unanswered(err) || err.Error() != "the connection to the database broke before it answered" {
				t.Errorf("error %v", err)
			}
			if n := storagetest.One[int](h, "select count(*) from turnkeeper.messages"); n != c.accepted {
				t.Errorf("%d messages", n)
			}
			if _, err := far.Enqueue(t.Context(), message); err != nil {
				t.Error(err)
			}
			if n := storagetest.One[int](h, "select count(*) from turnkeeper.messages"); n != 1 {
				t.Errorf("%d messages after the repeat", n)
			}
			message.Body = "other"
			if _, err := far.Enqueue(t.Context(), message); err == nil || storage.Unanswered(err) {
				t.Errorf("a refusal is %v", err)
			}
		})
	}
}
