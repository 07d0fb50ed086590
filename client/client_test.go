package client_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/client"
	"turnkeeper/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// patience is the timeout of a test, far longer than any step takes.
const patience = time.Minute

// A site is a database with the agents clerk and desk, and the retired agent old.
type site struct {
	*testing.T
	pool   *pgxpool.Pool // of a role with the rights of the README
	admin  *pgxpool.Pool // of the workers' role
	looked chan struct{} // receives a value after a query of Wait or Outbox
}

func open(t *testing.T) *site {
	t.Helper()
	url := storagetest.URL(t)
	store := storagetest.Open(t, url)
	for i, name := range []string{"clerk", "desk", "old"} {
		if err := store.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{{
			Name: name, DefinitionHash: strings.Repeat(strconv.Itoa(i), 64), Definition: []byte("---\n---\nHello."),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.RetireAgent(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(storagetest.SenderURL(t, url, "_app"))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, looked: make(chan struct{}, 1)}
	config.ConnConfig.Tracer = s
	if s.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if s.admin, err = pgxpool.New(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.pool.Close(); s.admin.Close() })
	// The function answer closes a message without ringing the doorbell.
	s.exec(
		`create function public.answer(message bigint) returns void language plpgsql as $$ declare m turnkeeper.messages; turn bigint; begin
		select * into m from turnkeeper.messages where id = message;
		insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
			values (m.id, 1, m.agent, m.conversation, m.lane, 'message', repeat('a', 64), 'degraded', 1, now(), 'max_rounds') returning id into turn;
		insert into turnkeeper.replies (message_id, turn_id, agent, conversation, sent_by, outcome, body, stop_reason, error_class, calls)
			values (m.id, turn, m.agent, m.conversation, m.sent_by, 'degraded', upper(m.body), 'max_rounds', 'odd',
			'[{"ordinal":1,"id":"round-1-tool-2","name":"stock","effect":"keyed","state":"failed","duration_ms":12,"error":"no"}]');
		update turnkeeper.messages set state = 'succeeded', closed_at = now(), turn_id = turn where id = message;
	end $$;
	alter table turnkeeper.messages disable trigger user;
	alter table turnkeeper.replies disable trigger user, enable trigger complete_reply`)
	return s
}

type looking struct{}

// TraceQueryStart and TraceQueryEnd report the queries of Wait and Outbox to looked.
func (s *site) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(d.SQL, "select closed_at") || strings.Contains(d.SQL, "replies_after") {
		return context.WithValue(ctx, looking{}, true)
	}
	return ctx
}

func (s *site) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(looking{}) != nil {
		select {
		case s.looked <- struct{}{}:
		default:
		}
	}
}

func (s *site) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.admin.Exec(s.Context(), sql, args...); err != nil {
		s.Fatal(err)
	}
}

func (s *site) send(db client.DB, agent, body string) turnkeeper.MessageID {
	s.Helper()
	id, err := client.Enqueue(s.Context(), db, turnkeeper.Submission{Agent: agent, Body: body})
	if err != nil {
		s.Fatal(err)
	}
	return id
}

// cancel closes a message as an operator does: with a reply, ringing the doorbell.
func (s *site) cancel(id turnkeeper.MessageID) {
	s.Helper()
	s.exec("select turnkeeper.cancel_message($1, '')", int64(id))
}

// cut terminates the listening sessions.
func (s *site) cut() {
	s.Helper()
	s.exec(
		`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
		and (query like 'select closed_at%' or query like '%replies_after%')`)
}

func TestEnqueue(t *testing.T) {
	s := open(t)
	pool := s.pool
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	whole := turnkeeper.Submission{
		Agent: "clerk", Body: "hello", Conversation: "c", Key: "k", Priority: -3, DueAt: due,
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
	id, err := client.Enqueue(t.Context(), pool, whole)
	if err != nil {
		t.Fatal(err)
	}
	var got turnkeeper.Submission
	err = s.admin.QueryRow(t.Context(),
		"select agent, body, conversation, idempotency_key, priority, trace_parent, due_at from turnkeeper.messages where id = $1", id).
		Scan(&got.Agent, &got.Body, &got.Conversation, &got.Key, &got.Priority, &got.TraceParent, &got.DueAt)
	if got.DueAt = got.DueAt.In(due.Location()); err != nil || got != whole {
		t.Errorf("it is kept as %+v, error %v; want %+v", got, err, whole)
	}
	if again, err := client.Enqueue(t.Context(), pool, whole); err != nil || again != id {
		t.Errorf("a repeat is %d, error %v; want %d", again, err, id)
	}
	for name, c := range map[string]struct {
		m    turnkeeper.Submission
		want error
		text string
	}{
		"empty": {turnkeeper.Submission{Agent: "clerk"}, turnkeeper.ErrEmptyMessage, "message cannot be empty"},
		"too long": {turnkeeper.Submission{Agent: "clerk", Body: strings.Repeat("x", 1<<16+1)},
			turnkeeper.ErrInvalidMessage, "the limit is 65536"},
		"not text": {turnkeeper.Submission{Agent: "clerk", Body: "\xff"}, turnkeeper.ErrInvalidMessage, "UTF-8"},
		"unknown agent": {turnkeeper.Submission{Agent: "nobody", Body: "x"}, turnkeeper.ErrUnknownAgent,
			"unknown agent 'nobody'"},
		"retired agent": {turnkeeper.Submission{Agent: "old", Body: "x"}, turnkeeper.ErrAgentRetired,
			"agent 'old' is retired"},
		"another body": {turnkeeper.Submission{Agent: "clerk", Body: "other", Conversation: "c", Key: "k"},
			turnkeeper.ErrKeyConflict, "idempotency key"},
	} {
		if _, err := client.Enqueue(t.Context(), pool, c.m); !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	undone := errors.New("undone")
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		s.send(tx, "clerk", "never")
		return undone
	})
	var n int
	if err2 := s.admin.QueryRow(t.Context(), "select count(*) from turnkeeper.messages").Scan(&n); !errors.Is(err,
		undone) || err2 != nil || n != 1 {
		t.Errorf("%d messages after a transaction that was undone, errors %v, %v", n, err, err2)
	}
}

func TestWait(t *testing.T) {
	s := open(t)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for name, c := range map[string]struct {
		poll time.Duration
		end  func(turnkeeper.MessageID)
		want turnkeeper.Reply
	}{
		"by the doorbell": {time.Hour, s.cancel, turnkeeper.Reply{Outcome: turnkeeper.TurnCancelled,
			Body: "This turn was cancelled."}},
		"by the poll": {time.Millisecond, func(id turnkeeper.MessageID) {
			s.exec("select answer($1)", int64(id))
		}, turnkeeper.Reply{Outcome: turnkeeper.TurnDegraded, Body: "X"}},
		"over a lost connection": {
			time.Hour, func(id turnkeeper.MessageID) { s.cut(); s.exec("select answer($1)", int64(id)) },
			turnkeeper.Reply{Outcome: turnkeeper.TurnDegraded, Body: "X"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer client.SetPoll(c.poll)()
			id := s.send(s.pool, "clerk", "x")
			select {
			case <-s.looked:
			default:
			}
			ended := make(chan struct{})
			var got turnkeeper.Reply
			var err error
			go func() {
				defer close(ended)
				got, err = client.Wait(ctx, s.pool, id)
			}()
			<-s.looked // Wait is listening, and has found no reply
			c.end(id)
			<-ended
			if err != nil || got.MessageID != id || got.Outcome != c.want.Outcome || got.Body != c.want.Body {
				t.Errorf("%+v, error %v", got, err)
			}
		})
	}
	t.Run("closed before", func(t *testing.T) {
		id := s.send(s.pool, "clerk", "x")
		s.exec("select answer($1)", int64(id))
		reply, err := client.Wait(ctx, s.pool, id)
		want := turnkeeper.Reply{
			ID: reply.ID, MessageID: id, TurnID: reply.TurnID, Agent: "clerk", Conversation: "main",
			Outcome: turnkeeper.TurnDegraded, Body: "X",
			StopReason: turnkeeper.StopMaxRounds, ErrorClass: "odd", CreatedAt: reply.CreatedAt, Labels: []string{},
			Calls: []turnkeeper.ReplyCall{{
				Key: turnkeeper.CallKey{Round: 1, Ordinal: 2}, Ordinal: 1, Name: "stock",
				Effect: turnkeeper.EffectKeyed, State: turnkeeper.CallFailed,
				Duration: 12 * time.Millisecond, Problem: "no",
			}},
		}
		if diff := cmp.Diff(want, reply); err != nil || diff != "" || reply.ID == 0 || reply.TurnID == 0 ||
			reply.CreatedAt.IsZero() {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
		s.exec("delete from turnkeeper.replies where message_id = $1", int64(id))
		if _, err := client.Wait(ctx, s.pool, id); !errors.Is(err, client.ErrNoReply) {
			t.Errorf("without a reply: %v", err)
		}
	})
	t.Run("no message", func(t *testing.T) {
		if _, err := client.Wait(ctx, s.pool, 1<<40); !errors.Is(err, turnkeeper.ErrNotFound) {
			t.Error(err)
		}
	})
	t.Run("not for ever", func(t *testing.T) {
		enough := errors.New("enough")
		ctx, stop := context.WithCancelCause(ctx)
		stop(enough)
		if _, err := client.Wait(ctx, s.pool, s.send(s.pool, "clerk", "x")); !errors.Is(err, enough) {
			t.Error(err)
		}
	})
	t.Run("unreachable until the deadline", func(t *testing.T) {
		config := s.pool.Config()
		config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no route to host")
		}
		unreachable, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer unreachable.Close()
		ctx, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		defer stop()
		_, err = client.Wait(ctx, unreachable, 1)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(),
			"the database could not be reached") || !strings.Contains(err.Error(), "no route to host") {
			t.Error(err)
		}
	})
	t.Run("no database", func(t *testing.T) {
		closed, err := pgxpool.NewWithConfig(t.Context(), s.pool.Config())
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		if _, err := client.Wait(ctx, closed, 1); err == nil || ctx.Err() != nil {
			t.Errorf("from a pool that is closed: %v", err)
		}
	})
}

func TestReplies(t *testing.T) {
	s := open(t)
	for _, agent := range []string{"clerk", "desk", "clerk"} {
		s.cancel(s.send(s.pool, agent, "x"))
	}
	s.exec("select turnkeeper.cancel_message(turnkeeper.enqueue('clerk', 'of another role'), '')")
	s.exec("update turnkeeper.replies set labels = '{private}' where id = 1")
	if got, err := client.Replies(t.Context(), s.pool, 0, 2, client.Filter{}); err != nil || len(got) != 2 ||
		!slices.Equal(got[0].Labels, []string{"private"}) || len(got[1].Labels) != 0 {
		t.Errorf("labels: %+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		after turnkeeper.ReplyID
		limit int
		f     client.Filter
		want  int
	}{
		"all":         {0, 100, client.Filter{}, 3},
		"of an agent": {0, 100, client.Filter{Agent: "desk"}, 1},
		"a page":      {0, 1, client.Filter{}, 1},
		"after":       {1, 100, client.Filter{}, 2},
		"no more":     {3, 1000, client.Filter{}, 0},
		"no limit":    {0, 0, client.Filter{}, -1},
		"too many":    {0, 1001, client.Filter{}, -1},
	} {
		got, err := client.Replies(t.Context(), s.pool, c.after, c.limit, c.f)
		if (err != nil) != (c.want < 0) || err == nil && len(got) != c.want {
			t.Errorf("%s: %d replies, error %v; want %d", name, len(got), err, c.want)
		}
		for i := range got {
			if got[i].ID <= c.after || i > 0 && got[i].ID <= got[i-1].ID {
				t.Errorf("%s: reply %d is out of order", name, got[i].ID)
			}
		}
	}
}

func TestOutbox(t *testing.T) {
	defer client.SetPoll(time.Hour)()
	s := open(t)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var want, got []turnkeeper.MessageID
	more := func() {
		id := s.send(s.pool, "clerk", "x")
		s.cancel(id)
		want = append(want, id)
	}
	for range 150 { // more than a page
		more()
	}
	s.cancel(s.send(s.pool, "desk", "x"))
	var last turnkeeper.ReplyID
	for reply, err := range client.Outbox(ctx, s.pool, 0, client.Filter{Agent: "clerk"}) {
		if err != nil {
			t.Fatal(err)
		}
		got, last = append(got, reply.MessageID), reply.ID
		switch len(got) {
		case 150: // Outbox must listen for the next one
			next := s.send(s.pool, "clerk", "y")
			want = append(want, next)
			go func() {
				s.cut()
				s.exec("select answer($1)", int64(next))
			}()
		case 151:
			more()
			more()
		}
		if len(got) == 152 {
			break
		}
	}
	if diff := cmp.Diff(want[:152], got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	enough := errors.New("enough")
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	n := 0
	for reply, err := range client.Outbox(ctx, s.pool, last, client.Filter{Agent: "clerk"}) {
		if n++; n == 1 {
			if err != nil || reply.MessageID != want[152] {
				t.Errorf("goes on with %+v, %v", reply, err)
			}
			end(enough)
			continue
		}
		if !errors.Is(err, enough) {
			t.Errorf("ends with %+v, %v", reply, err)
		}
	}
	if n != 2 {
		t.Errorf("%d elements, want the reply and the end", n)
	}
}

// TestExamples runs the examples against a database.
func TestExamples(t *testing.T) {
	s := open(t)
	pool = s.pool
	s.exec(
		`create table public.orders (id bigint primary key); create table public.answers (message_id bigint primary key, body text);
		create table public.outbox_place (reply_id bigint); insert into public.outbox_place values (0);
		grant all on public.orders, public.answers, public.outbox_place to public;
		create function public.at_once() returns trigger language plpgsql security definer as $$ begin perform public.answer(new.id); return null; end $$;
		create trigger at_once after insert on turnkeeper.messages for each row execute function public.at_once()`)
	ExampleEnqueue()
	ExampleWait()
	if _, err := client.Enqueue(t.Context(), pool, turnkeeper.Submission{Agent: "clerk", Body: "x",
		Conversation: "last"}); err != nil {
		t.Fatal(err)
	}
	ExampleOutbox()
	ExampleReplies()
	var orders, answers, place int
	err := pool.QueryRow(t.Context(),
		"select (select count(*) from orders), (select count(*) from answers), (select reply_id from outbox_place)").Scan(&orders, &answers, &place)
	if err != nil || orders != 1 || answers != 3 || place != 3 {
		t.Errorf("%d orders, %d answers, read to %d; error %v", orders, answers, place, err)
	}
}

// TestUsers enqueues for two users in one transaction each, and reads the replies to one of them.
func TestUsers(t *testing.T) {
	s := open(t)
	m := turnkeeper.Submission{Agent: "clerk", Body: "x", Key: "k"}
	ids := map[string]turnkeeper.MessageID{}
	for _, user := range []string{"anna", "bert"} {
		m.User = user
		id, err := client.Enqueue(t.Context(), s.pool, m)
		if err != nil {
			t.Fatal(err)
		}
		ids[user] = id
		if _, err := s.admin.Exec(t.Context(), "select turnkeeper.cancel_message($1, 'a test')", id); err != nil {
			t.Fatal(err)
		}
	}
	m.User = "a\nb"
	if _, err := client.Enqueue(t.Context(), s.pool, m); !errors.Is(err, turnkeeper.ErrInvalidMessage) {
		t.Errorf("a name on two lines: %v", err)
	}
	for user, id := range ids {
		replies, err := client.Replies(t.Context(), s.pool, 0, 10, client.Filter{User: user})
		if err != nil || len(replies) != 1 || replies[0].MessageID != id || replies[0].User != user {
			t.Errorf("the replies to %s are %+v, %v", user, replies, err)
		}
	}
	if all, err := client.Replies(t.Context(), s.pool, 0, 10, client.Filter{}); err != nil || len(all) != 2 {
		t.Errorf("%d replies, %v", len(all), err)
	}
}
