package storagetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// connections opens one connection through a proxy (near) and one directly (far).
func connections(t *testing.T) (p *storagetest.Proxy, near, far *pgx.Conn) {
	t.Helper()
	direct := storagetest.EmptyURL(t)
	p, url := storagetest.NewProxy(t, direct)
	open := func(url string) *pgx.Conn {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.RuntimeParams["application_name"] = "near"
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	near, far = open(url), open(direct)
	if _, err := far.Exec(t.Context(), "create table marks (mark text)"); err != nil {
		t.Fatal(err)
	}
	return p, near, far
}

func count(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "select count(*) from marks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUnits(t *testing.T) {
	p, near, _ := connections(t)
	var seen []storagetest.Sent
	p.Plan(func(sent storagetest.Sent) storagetest.Cut { seen = append(seen, sent); return storagetest.Pass })
	ctx := t.Context()
	const insert = "insert into marks values ($1)"
	for range 2 {
		if _, err := near.Exec(ctx, insert, "a"); err != nil {
			t.Fatal(err)
		}
	}
	err := pgx.BeginFunc(ctx, near, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(insert, "b")
		batch.Queue("select 1")
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []storagetest.Sent{
		{Application: "near", Statements: []string{insert}, Commits: true},
		{Application: "near", Statements: []string{insert}, Commits: true},
		{Application: "near", Statements: []string{"begin"}},
		{Application: "near", Statements: []string{insert, "select 1"}},
		{Application: "near", Statements: []string{"commit"}, Commits: true},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}

func TestCuts(t *testing.T) {
	for name, c := range map[string]struct {
		cut  storagetest.Cut
		done bool // the server has executed the unit
		open bool // the connection stays open: the client gets no error
	}{
		"lose":     {storagetest.Lose, false, false},
		"unanswer": {storagetest.Unanswer, true, false},
		"freeze":   {storagetest.Freeze, false, true},
		"hush":     {storagetest.Hush, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, near, far := connections(t)
			happened := p.CutNext(c.cut, func(sent storagetest.Sent) bool { return sent.Commits && sent.Has("insert") })
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan error, 1)
			go func() {
				_, err := near.Exec(ctx, "insert into marks values ($1)", "a")
				got <- err
			}()
			<-happened
			if c.open { // time for an error to arrive
				<-time.After(300 * time.Millisecond)
				cancel()
			}
			if err := <-got; err == nil || errors.Is(err, context.Canceled) != c.open {
				t.Errorf("the client got error %v", err)
			}
			cancel()
			if n := count(t, far); (n == 1) != c.done {
				t.Errorf("the server has %d marks", n)
			}
		})
	}
}
