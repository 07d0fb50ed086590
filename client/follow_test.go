package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"turnkeeper"
	"turnkeeper/client"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/testrun"
)

// A server plays a Postgres without tables, in fake time.
type server struct {
	mu     sync.Mutex
	down   bool
	mute   string // the statement that it does not answer, or refuses
	refuse bool
	conns  []net.Conn
	dials  []time.Time
	asked  []string // the number of the connection, and the statement
	serves sync.WaitGroup
}

// pool returns a pool of connections to the server.
func (s *server) pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres://u@db/d?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"db"}, nil }
	config.ConnConfig.DialFunc = s.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func (s *server) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials = append(s.dials, time.Now())
	if s.down {
		return nil, errors.New("nobody listens")
	}
	theirs, own := net.Pipe()
	s.conns = append(s.conns, own)
	n := len(s.dials)
	s.serves.Go(func() { s.serve(n, own) })
	return theirs, nil
}

// serve answers each statement on the nth connection, until it ends.
func (s *server) serve(n int, conn net.Conn) {
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
		message, err := b.Receive()
		query, ok := message.(*pgproto3.Query)
		if err != nil || !ok {
			return
		}
		s.mu.Lock()
		mute, refuse := query.String == s.mute, s.refuse
		s.asked = append(s.asked, fmt.Sprintf("%d %s", n, query.String))
		s.mu.Unlock()
		switch {
		case mute && refuse:
			b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014",
				Message: "canceling statement due to statement timeout"})
			continue
		case mute:
			_, _ = b.Receive()
			return
		}
		if strings.HasPrefix(query.String, "--") {
			b.Send(&pgproto3.EmptyQueryResponse{})
		} else {
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("LISTEN")})
		}
	}
}

// set takes the server down, which cuts its connections, or up.
func (s *server) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.down, s.conns = down, nil
}

// close ends the pool and the server.
func (s *server) close(pool *pgxpool.Pool) {
	s.set(true)
	pool.Close()
	s.serves.Wait()
}

// TestHowLongTheClientRetries checks that an outage of half a minute after the last answer is bridged, however long the
// client has waited by then, that a longer one is not, and that it is tried twice a second.
func TestHowLongTheClientRetries(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		outages [][2]time.Duration // from and to, since the beginning
		fails   bool
	}{
		"at once":                    {[][2]time.Duration{{0, 29 * time.Second}}, false},
		"for too long at once":       {[][2]time.Duration{{0, hour}}, true},
		"after an hour":              {[][2]time.Duration{{hour, hour + 28*time.Second}}, false},
		"for too long after an hour": {[][2]time.Duration{{hour, 2 * hour}}, true},
		"twice, with an answer between": {[][2]time.Duration{{hour, hour + 20*time.Second}, {hour + 23*time.Second,
			hour + 41*time.Second}},
			false},
		"again for too long, much later": {[][2]time.Duration{{time.Minute, 80 * time.Second}, {hour, 2 * hour}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				pool, began := s.pool(t), time.Now()
				for _, outage := range c.outages {
					if outage[0] == 0 {
						s.set(true)
					} else {
						time.AfterFunc(outage[0], func() { s.set(true) })
					}
					time.AfterFunc(outage[1], func() { s.set(false) })
				}
				answered := began
				err := client.Follow(t.Context(), pool, func(context.Context, client.DB) (bool, error) {
					answered = time.Now()
					return time.Since(began) >= 3*hour, nil
				})
				waited := time.Since(answered)
				switch {
				case !c.fails && (err != nil || time.Since(began) > 3*hour+2*time.Second):
					t.Errorf("it ends after %s: %v", time.Since(began), err)
				case c.fails && (err == nil || waited <= 30*time.Second || waited > 30*time.Second+
					500*time.Millisecond):
					t.Errorf("it ends %s after the last answer: %v", waited, err)
				case c.fails:
					if n := len(s.dials); s.dials[n-1].Sub(s.dials[n-2]) != 500*time.Millisecond {
						t.Errorf("the last tries were at %s and %s", s.dials[n-2], s.dials[n-1])
					}
				}
				s.close(pool)
			})
		})
	}
}

// TestAnOutageThatTheCallerEnds checks that the end of the caller's context names the outage only while there is one.
func TestAnOutageThatTheCallerEnds(t *testing.T) {
	enough := errors.New("enough")
	for away, want := range map[time.Duration]bool{20 * time.Second: false, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			pool := s.pool(t)
			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { s.set(true) })
			time.AfterFunc(time.Minute+away, func() { s.set(false) })
			time.AfterFunc(time.Minute+25*time.Second, func() { stop(enough) })
			err := client.Follow(ctx, pool, func(context.Context, client.DB) (bool, error) { return false, nil })
			if !errors.Is(err, enough) || strings.Contains(err.Error(), "could not be reached") != want {
				t.Errorf("away for %s: %v", away, err)
			}
			s.close(pool)
		})
	}
}

// TestAServerThatIsSilentAtTheEnd checks that a server that does not answer the last statement keeps the caller for 5
// seconds, and that its connection, which still listens, is not used again. Nor is that of a server that refuses the
// statement.
func TestAServerThatIsSilentAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		mute   string
		refuse bool
		wait   time.Duration
		again  bool // on the same connection
	}{
		{"", false, 0, true}, {"unlisten turnkeeper_turns", false, 10 * time.Second, false},
		{"unlisten turnkeeper_turns", true, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{mute: c.mute, refuse: c.refuse}
			pool, began := s.pool(t), time.Now()
			for range 2 {
				if err := client.Follow(t.Context(), pool, func(context.Context, client.DB) (bool, error) {
					return true, nil
				}); err != nil {
					t.Error(err)
				}
			}
			s.mu.Lock()
			asked := slices.Clone(s.asked)
			s.mu.Unlock()
			again := asked[2][:1]
			if took := time.Since(began); took != c.wait || (again == "1") != c.again {
				t.Errorf("%+v: it took %s; asked %q", c, took, asked)
			}
			want := fmt.Sprintf(
				"1 listen turnkeeper_turns; 1 unlisten turnkeeper_turns; %s listen turnkeeper_turns; %[1]s unlisten turnkeeper_turns", again)
			if got := strings.Join(asked, "; "); got != want {
				t.Errorf("asked %s, want %s", got, want)
			}
			s.close(pool)
		})
	}
}

// TestWhichErrorsPass checks after which errors the client tries again.
func TestWhichErrorsPass(t *testing.T) {
	server := func(code string) error { return fmt.Errorf("a query: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{server("08006"), true}, {server("53300"), true}, {server("57P01"), true}, {server("57014"), false},
		{server("42501"), false},
		{server("TK013"), false},
		{errors.New("the connection broke"), true}, {io.ErrUnexpectedEOF, true}, {context.DeadlineExceeded, true},
		{turnkeeper.ErrNotFound, false}, {client.ErrNoReply, false}, {puddle.ErrClosedPool, false},
		{fmt.Errorf("wrapped: %w", turnkeeper.ErrNotFound), false},
		{fmt.Errorf("wrapped: %w", client.ErrNoReply), false},
		{fmt.Errorf("wrapped: %w", puddle.ErrClosedPool), false},
	} {
		if got := client.Passes(c.err); got != c.want {
			t.Errorf("%v passes: %t", c.err, got)
		}
	}
}

var errAsked = errors.New("the database was asked")

// An asking is a database that only says that it was asked.
type asking struct{ client.DB }

func (asking) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errAsked }

// TestLimits tries each limit of the client.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"largest": {
			None: "a message of half a gigabyte is too much for a test; turnkeeper.Submission.Check has the limit"},
		"maxReplies": {At: 1000, Takes: func(t *testing.T, limit int) bool {
			_, err := client.Replies(t.Context(), asking{}, 0, limit, client.Filter{})
			return errors.Is(err, errAsked)
		}},
		"pageSize":   {Test: "TestOutboxByPages"},
		"patience":   {Test: "TestHowLongTheClientRetries"},
		"afterBreak": {Test: "TestHowLongTheClientRetries"},
		"goodbye":    {Test: "TestAServerThatIsSilentAtTheEnd"},
		"maxProblem": {At: 16 << 10, Takes: func(t *testing.T, size int) bool {
			const frame = `{"detail":""}`
			detail := strings.Repeat("x", size-len(frame))
			a := &away{began: time.Now(), says: func(time.Duration) *http.Response {
				return says(http.StatusForbidden, `{"detail":"`+detail+`"}`)
			}}
			var last error
			for _, err := range (client.Server{URL: "http://api.example", HTTP: &http.Client{Transport: a}}).Watch(
				t.Context(), 1, "") {
				last = err
			}
			return last != nil && last.Error() == detail
		}},
		"maxLine": {At: 64<<20 - 1, Slow: true, Takes: func(t *testing.T, size int) bool { // and the end of the line
			if !testrun.Full() {
				t.Skip("it takes seconds")
			}
			answer := streams(closed)
			answer.Body = io.NopCloser(io.MultiReader(strings.NewReader(":"+strings.Repeat("x", size-1)+"\n"),
				answer.Body))
			first, ended := true, false
			a := &away{began: time.Now(), says: func(time.Duration) *http.Response {
				if first {
					first = false
					return answer
				}
				return says(http.StatusForbidden, "{}")
			}}
			for e, err := range (client.Server{URL: "http://api.example", HTTP: &http.Client{Transport: a}}).Watch(
				context.Background(), 1, "") {
				ended = err == nil && e.Type == client.EventMessageClosed
			}
			return ended
		}},
	})
}

// TestOutboxByPages reads replies that end before, at and after the end of a page of 100: each once, and none is
// awaited.
func TestOutboxByPages(t *testing.T) {
	defer client.SetPoll(time.Hour)()
	s := open(t)
	s.exec(`insert into turnkeeper.messages (agent, conversation, lane, body, sent_by)
		select 'clerk', 'c' || n, turnkeeper.lane_of('clerk', '', 'c' || n, true), 'x', (select sent_by from turnkeeper.messages where id = $1)
		from generate_series(2, 402) n`, int64(s.send(s.pool, "clerk", "x")))
	s.exec("select answer(id) from turnkeeper.messages order by id")
	s.exec("delete from turnkeeper.replies where id % 2 = 0")
	for _, n := range []int{99, 100, 101, 199, 200, 201} {
		var read []turnkeeper.ReplyID
		enough := errors.New("enough")
		ctx, stop := context.WithCancelCause(t.Context())
		first := turnkeeper.ReplyID(401 - 2*n)
		for reply, err := range client.Outbox(ctx, s.pool, first, client.Filter{}) {
			if err != nil {
				if !errors.Is(err, enough) {
					t.Errorf("%d replies end with %v", n, err)
				}
				break
			}
			if read = append(read, reply.ID); len(read) == n {
				stop(enough)
			}
		}
		stop(nil)
		for i, id := range read {
			if id != first+2*turnkeeper.ReplyID(i+1) {
				t.Errorf("of %d, reply %d is the %dth", n, id, i+1)
			}
		}
		if len(read) != n {
			t.Errorf("%d of %d replies were read", len(read), n)
		}
	}
}
