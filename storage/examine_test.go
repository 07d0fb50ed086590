package storage_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// A pooler is a proxy that assigns the sessions of a server to clients for one transaction each,
// like PgBouncer with pool_mode = transaction.
type pooler struct {
	sessions chan *session
}

// A session is a connection to the server.
type session struct {
	server *pgconn.HijackedConn
}

// newPooler starts a pooler with this number of sessions, and returns its URL.
func newPooler(t *testing.T, server string, sessions int) string {
	t.Helper()
	p := &pooler{make(chan *session, sessions)}
	for range sessions {
		conn, err := pgconn.Connect(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		hijacked, err := conn.Hijack()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hijacked.Conn.Close() })
		p.sessions <- &session{hijacked}
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait() // the stores are closed already
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = listener.Addr().String(), "sslmode=disable"
	return u.String()
}

func (p *pooler) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	client := pgproto3.NewBackend(conn, conn)
	if _, err := client.ReceiveStartupMessage(); err != nil {
		return
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if client.Flush() != nil {
		return
	}
	for {
		message, err := client.Receive()
		if err != nil {
			return
		}
		if !p.transaction(client, message) {
			return
		}
	}
}

// transaction assigns a session to the client until its transaction ends.
func (p *pooler) transaction(client *pgproto3.Backend, message pgproto3.FrontendMessage) bool {
	s := <-p.sessions
	defer func() { p.sessions <- s }()
	for {
		if _, over := message.(*pgproto3.Terminate); over {
			return false
		}
		s.server.Frontend.Send(message)
		_, query := message.(*pgproto3.Query)
		if _, sync := message.(*pgproto3.Sync); sync || query {
			if s.server.Frontend.Flush() != nil {
				return false
			}
			for answered := false; !answered; {
				answer, err := s.server.Frontend.Receive()
				if err != nil {
					return false
				}
				client.Send(answer)
				var ready *pgproto3.ReadyForQuery
				if ready, answered = answer.(*pgproto3.ReadyForQuery); answered && ready.TxStatus == 'I' {
					return client.Flush() == nil
				}
			}
			if client.Flush() != nil {
				return false
			}
		}
		var err error
		if message, err = client.Receive(); err != nil {
			return false
		}
	}
}

func TestAPoolerThatSharesSessions(t *testing.T) {
	url := storagetest.URL(t)
	for name, sessions := range map[string]int{"one session": 1, "two sessions in turn": 2,
		"three sessions in turn": 3} {
		t.Run(name, func(t *testing.T) {
			s := storagetest.Open(t, newPooler(t, url, sessions))
			if err := s.CheckSessions(t.Context()); !errors.Is(err, storage.ErrSharedSessions) ||
				!strings.Contains(err.Error(), "pool_mode = session") {
				t.Errorf("the error is %v", err)
			}
		})
	}
	for name, conns := range map[string]int{"the server itself": 0, "the server itself, with one connection": 1} {
		s, err := storage.Open(t.Context(), storage.Options{URL: url, MaxConns: conns})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CheckSessions(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

func TestTablesThatAreMissing(t *testing.T) {
	h := newEnv(t)
	if err := h.CheckTables(t.Context()); err != nil {
		t.Errorf("a new database: %v", err)
	}
	h.Exec("alter table turnkeeper.notes set schema public; alter table turnkeeper.river_queue rename to gone")
	err := h.CheckTables(t.Context())
	if err == nil || !strings.Contains(err.Error(),
		"tables that the migrations created are missing: turnkeeper.notes, turnkeeper.river_queue;") {
		t.Errorf("the error is %v", err)
	}
	if _, err := storagetest.Migrate(t.Context(), h.Store.DB); err != nil {
		t.Errorf("migrating: %v", err)
	}
}

func TestTheEncodingOfADatabase(t *testing.T) {
	h := newEnv(t)
	name := storagetest.One[string](h, "select current_database() || '_ascii'")
	quoted := pgx.Identifier{name}.Sanitize()
	h.Exec("create database " + quoted + " encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0")
	other, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	other.Path = "/" + name
	s, err := storage.Open(t.Context(), storage.Options{URL: other.String()})
	if err != nil {
		t.Fatal(err)
	}
	for store, want := range map[*storage.DB]string{h.Store.DB: "UTF8", s: "SQL_ASCII"} {
		if got, err := store.Encoding(t.Context()); err != nil || got != want {
			t.Errorf("%q, %v; want %s", got, err, want)
		}
	}
	s.Close()
	h.Exec("drop database " + quoted + " with (force)")
}

// TestRightsToRevoke grants each right that a sender must not have, directly, on a column, to everybody and by a role
// of the server, and runs the statements that take it away.
func TestRightsToRevoke(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	check := func(want ...string) {
		t.Helper()
		got, err := h.RightsToRevoke(t.Context())
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q, error %v; want %q", got, err, want)
		}
		for _, statement := range got {
			h.Exec(statement)
		}
	}
	check() // with the rights of the README
	h.Exec("create role " + app.name + "_worker in role " + storagetest.One[string](h,
		"select quote_ident(current_user)"))
	t.Cleanup(func() {
		if _, err := h.Pool().Exec(context.WithoutCancel(t.Context()), "drop owned by "+app.name+"_worker; drop role "+
			app.name+"_worker"); err != nil {
			t.Error(err)
		}
	})
	h.Exec("grant all on turnkeeper.messages to " + app.name + "_worker") // it has the rights of the workers' role
	h.Exec("grant select, insert on turnkeeper.messages, turnkeeper.asks to " + app.name)
	h.Exec("grant update (priority), insert (body) on turnkeeper.messages to " + app.name)
	h.Exec("grant references on turnkeeper.replies, turnkeeper.turns to " + app.name)
	h.Exec("grant references (name) on turnkeeper.agents to " + app.name)
	h.Exec("grant delete, truncate on turnkeeper.replies to public")
	h.Exec("grant create on schema turnkeeper to " + app.name)
	h.Exec("grant execute on function turnkeeper.lease_over(timestamptz, timestamptz) to public")
	h.Exec("grant pg_write_all_data to " + app.name)
	check(
		"revoke create on schema turnkeeper from "+app.name+";",
		"revoke delete, truncate on table turnkeeper.replies from public;",
		"revoke execute on routine turnkeeper.lease_over(granted_at timestamp with time zone, lease_until timestamp with time zone) from public;",
		"revoke insert on table turnkeeper.asks from "+app.name+";",
		"revoke insert, insert (body), update (priority) on table turnkeeper.messages from "+app.name+";",
		"revoke pg_write_all_data from "+app.name+";",
		"revoke references (name) on table turnkeeper.agents from "+app.name+";",
		"revoke references on table turnkeeper.replies, turnkeeper.turns from "+app.name+";",
	)
	check()
}

// TestSessionsCannotBeChecked closes each pool, as if the server gave no connection: that is an error like others.
func TestSessionsCannotBeChecked(t *testing.T) {
	for name, closes := range map[string]func(db *storagetest.DB){
		"no connection": func(db *storagetest.DB) { db.Core().Pool.Close() },
		"one only":      func(db *storagetest.DB) { db.Core().Queue.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			db := storagetest.Open(t, storagetest.URL(t))
			closes(db)
			if err := db.CheckSessions(t.Context()); err == nil || errors.Is(err, storage.ErrSharedSessions) {
				t.Errorf("the error is %v", err)
			}
			if free := db.Core().Pool.Stat().AcquiredConns(); free != 0 {
				t.Errorf("%d connections are still in use", free)
			}
		})
	}
}
