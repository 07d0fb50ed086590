package storage_test

import (
	"context"
	"net"
	"net/url"
	"testing"
	"time"

	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// TestCausesOfRealConnections opens connections that fail in each way that a server on this machine can be made to
// fail. A lazy database fails in the same way when it is used.
func TestCausesOfRealConnections(t *testing.T) {
	store := storagetest.Open(t, storagetest.URL(t))
	for _, statement := range []string{"create role nobody_may login password 'secret' connection limit 0",
		"create role no_login password 'secret'"} {
		if _, err := store.Pool().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, role := range []string{"nobody_may", "no_login"} {
			_, _ = store.Pool().Exec(context.WithoutCancel(t.Context()), "drop role "+role)
		}
	})
	good := store.Pool().Config().ConnString()
	with := func(change func(u *url.URL, q url.Values)) string {
		u, err := url.Parse(good)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		change(u, q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	as := func(user string) string {
		return with(func(u *url.URL, _ url.Values) { u.User = url.UserPassword(user, "secret") })
	}
	at := func(address string, more ...string) string {
		return with(func(u *url.URL, q url.Values) {
			u.Host = address
			q.Del("host")
			q.Del("port")
			for i := 0; i < len(more); i += 2 {
				q.Set(more[i], more[i+1])
			}
		})
	}
	for name, c := range map[string]struct{ url, cause string }{
		"no database":          {with(func(u *url.URL, _ url.Values) { u.Path = "/nowhere" }), "3D000"},
		"no role":              {as("nobody_at_all"), "28P01"},
		"a role without login": {as("no_login"), "28000"},
		"no connection left":   {as("nobody_may"), "53300"},
		"nothing listens":      {at("127.0.0.1:1"), storage.CauseRefused},
		"no such name":         {at("nowhere.invalid:5432"), storage.CauseName},
		"it closes":            {at(listen(t, func(c net.Conn) { _ = c.Close() })), storage.CauseClosed},
		"no TLS": {at(listen(t, func(c net.Conn) { _, _ = c.Write([]byte("N")) }), "sslmode", "require"),
			storage.CauseTLS},
		"it never answers": {at(listen(t, func(net.Conn) {}), "connect_timeout", "1"), storage.CauseTimeout},
		"no URL":           {"postgres://%zz", storage.CauseURL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for _, lazy := range []bool{false, true} {
				db, err := storage.Open(ctx, storage.Options{URL: c.url, Lazy: lazy})
				if err == nil {
					if !lazy {
						t.Error("it connects")
					}
					err = db.Ping(ctx)
					db.Close()
				}
				if got := storage.Cause(err); got != c.cause {
					t.Errorf("lazy %t: the cause is %q, want %q: %v", lazy, got, c.cause, err)
				}
			}
		})
	}
}

// listen returns the address of a server that does serve with each connection, after its first bytes.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Read(make([]byte, 100))
			serve(c)
		}
	}()
	return l.Addr().String()
}
