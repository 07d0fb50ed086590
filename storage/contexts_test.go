package storage_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// A method is one of a store, with a context. call calls it with arguments that lead far, and returns its error.
type method struct {
	name string
	call func(ctx context.Context) error
}

// A caller calls the methods of the stores of a database, through a proxy.
type caller struct {
	home  *env // without the proxy
	proxy *storagetest.Proxy
	far   *storagetest.DB
	grant *storagetest.Dispatch // of a turn that runs
	began time.Time             // the time in arguments
	id    int64                 // of the rows in arguments; 0: 1
}

// newCaller returns a caller for a database in which turn 1 runs, with an ask, an output and a call that may start, and
// turn 2 waits for a detached call. Agents, schedules, webhooks and so on have the name clerk.
func newCaller(t *testing.T) *caller {
	t.Helper()
	c := &caller{home: newEnv(t), began: time.Now()}
	c.home.Register("clerk", false, clerkSchedule)
	if err := c.home.RegisterWebhook(t.Context(), outbox.Webhook{Name: "clerk", Origin: "https://clerk"}); err != nil {
		t.Fatal(err)
	}
	c.grant = c.home.Turn("running")
	c.grant.Write(t, turnlog.Entry{
		Round:  storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce, turnkeeper.EffectNone),
		Events: storagetest.Events(turnkeeper.EventTurnStart),
		Gates:  []turnkeeper.CallKey{storagetest.Key(1, 1)},
		Asks: []asks.Question{{
			Call: storagetest.Key(1, 1), Kind: asks.KindApprove, N: 1, Tool: "tool", Arguments: "{}",
			Terms: asks.Terms{Timeout: time.Hour},
		}},
		Results: []turnlog.CallResult{{
			Key: storagetest.Key(1, 3), State: turnkeeper.CallSucceeded, Output: &turnkeeper.Output{ID: "clerk",
				Text: "text", SizeBytes: 4},
		}},
	})
	record, err := c.home.Load(t.Context(), c.grant.Grant.TurnID, c.grant.Grant.GrantID)
	if err != nil {
		t.Fatal(err)
	}
	c.grant.Record = record
	c.home.Waiting("a")
	var url string
	c.proxy, url = storagetest.NewProxy(t, c.home.URL)
	c.far = storagetest.OpenWith(t, storage.Options{URL: url, MaxConns: 2})
	t.Cleanup(c.proxy.Break) // otherwise the store waits for dead connections when it closes
	return c
}

var clerkSchedule = turnkeeper.Schedule{Agent: "clerk", Name: "clerk", Cron: "@daily", TimeZone: "UTC", Message: "m"}

// stores are the stores whose methods are called. A Writer and a Tick belong to a turn and a transaction.
func (c *caller) stores() []any {
	o := c.far.Store
	return []any{
		o.DB, o.Views, o.Reports, o.Control, o.Responses, o.TokenStore, o.WebhookStore, o.MCPStore, o.AskStore,
		c.far.Journals, c.far.Grants,
		(*journal.Writer)(nil), (*grants.Tick)(nil),
	}
}

var contextType, errorType = reflect.TypeFor[context.Context](), reflect.TypeFor[error]()

// methods returns the methods with a context of those of the stores.
func (c *caller) methods(stores ...any) (all []method) {
	for _, store := range stores {
		of := reflect.TypeOf(store)
		for m := range of.Methods() {
			if m.Type.NumIn() > 1 && m.Type.In(1) == contextType {
				name := strings.TrimPrefix(of.String(), "*") + "." + m.Name
				all = append(all, method{name, func(ctx context.Context) error { return c.invoke(ctx, store, m) }})
			}
		}
	}
	return all
}

func (c *caller) invoke(ctx context.Context, store any, m reflect.Method) error {
	switch store.(type) {
	case *grants.Tick:
		return c.far.InTick(ctx, func(tick *grants.Tick) error {
			if m.Name != "Snapshot" {
				if _, _, err := tick.Snapshot(ctx, true); err != nil {
					return err
				}
			}
			_, err := c.with(ctx, reflect.ValueOf(tick), m)
			return err
		})
	case *journal.Writer:
		_, err := c.with(ctx, reflect.ValueOf(c.far.Writer(c.grant.Record, c.grant.Grant)), m)
		return err
	default:
		_, err := c.with(ctx, reflect.ValueOf(store), m)
		return err
	}
}

// with calls a method with arguments made for its types, and returns its results and its error.
func (c *caller) with(ctx context.Context, on reflect.Value, m reflect.Method) (results []any, err error) {
	in := []reflect.Value{on, reflect.ValueOf(ctx)}
	for i := 2; i < m.Type.NumIn(); i++ {
		in = append(in, c.argument(m.Type.In(i), 0))
	}
	call := m.Func.Call
	if m.Type.IsVariadic() {
		call = m.Func.CallSlice
	}
	for _, out := range call(in) {
		if out.Type() != errorType {
			results = append(results, out.Interface())
		} else if !out.IsNil() {
			err = out.Interface().(error)
		}
	}
	return results, err
}

// argument returns a value that is not zero: rows with the id 1 exist, and an agent clerk.
func (c *caller) argument(of reflect.Type, depth int) reflect.Value {
	v := reflect.New(of).Elem()
	switch v.Interface().(type) {
	case time.Time:
		return reflect.ValueOf(c.began)
	case time.Duration:
		return reflect.ValueOf(time.Hour)
	case turnkeeper.GrantID:
		return reflect.ValueOf(c.grant.Grant.GrantID)
	case *dbsqlc.Queries:
		return reflect.ValueOf(c.far.Core().Q)
	case *dbsqlc.TurnForWorkerRow:
		row := c.argument(of.Elem(), depth)
		return row.Addr()
	case turnlog.Entry:
		return reflect.ValueOf(turnlog.Entry{Events: storagetest.Events(turnkeeper.EventRoundStart)})
	case turnlog.CallStart:
		return reflect.ValueOf(storagetest.Start(storagetest.Key(1, 2), "nonce", 1, turnkeeper.EffectOnce))
	case turnkeeper.AgentRegistration:
		return reflect.ValueOf(storagetest.Registration("clerk", false, clerkSchedule))
	case operate.Pin:
		return reflect.ValueOf(operate.Pin{Agent: "clerk", Level: survival.Critical, By: "clerk"})
	case turnlog.CallRef:
		return reflect.ValueOf(turnlog.CallRef{TurnID: 2, Key: storagetest.Key(1, 1), Attempt: 1})
	case []byte:
		return reflect.ValueOf([]byte("{}"))
	}
	switch of.Kind() {
	case reflect.String:
		v.SetString("clerk")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(max(c.id, 1))
	case reflect.Slice:
		v.Set(reflect.Append(v, c.argument(of.Elem(), depth)))
	case reflect.Struct:
		for i := range v.NumField() {
			if of.Field(i).IsExported() {
				v.Field(i).Set(c.argument(of.Field(i).Type, depth+1))
			}
		}
	case reflect.Func:
		if depth == 0 {
			v.Set(reflect.MakeFunc(of, func([]reflect.Value) (out []reflect.Value) {
				for i := range of.NumOut() {
					out = append(out, reflect.Zero(of.Out(i)))
				}
				return out
			}))
		}
	case reflect.Interface:
		if of == errorType {
			v.Set(reflect.ValueOf(errors.New("an error")))
		}
	}
	return v
}

// promptly is far above what a call takes, and below the timeouts of statements and locks.
const promptly = 9 * time.Second

// returns waits until a call returns.
func returns(t *testing.T, name string, call func() error) (ok bool, err error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err = <-ended:
		return true, err
	case <-time.After(promptly):
		t.Errorf("%s did not return", name)
		return false, nil
	}
}

// silent are methods that send something though their context has ended, or return no error, with the reason.
var silent = map[string]string{
	"storage.DB.RecheckWrites": "it returns no error",
	"journal.Writer.Append":    "it reads back whether the write was done",
	"journal.Writer.Transact":  "it reads back whether the write was done",
}

// TestNothingIsAskedAfterTheContext calls each method with a context that has ended: it fails, and sends nothing.
func TestNothingIsAskedAfterTheContext(t *testing.T) {
	c := newCaller(t)
	var sent atomic.Int64
	c.proxy.Plan(func(storagetest.Sent) storagetest.Cut {
		sent.Add(1)
		return storagetest.Pass
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, m := range c.methods(c.stores()...) {
		before := sent.Load()
		_, err := returns(t, m.name, func() error { return m.call(ctx) })
		if n := sent.Load() - before; (n > 0 || err == nil) != (silent[m.name] != "") {
			t.Errorf("%s: %d units were sent, error %v", m.name, n, err)
		}
	}
}

// TestCallsOfADatabaseThatIsAway calls each method while the database is unavailable: it returns when its context ends,
// if not before.
func TestCallsOfADatabaseThatIsAway(t *testing.T) {
	c := newCaller(t)
	c.proxy.Refuse(true)
	c.proxy.Break()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var group sync.WaitGroup
	for _, m := range c.methods(c.stores()...) {
		group.Go(func() {
			if ok, err := returns(t, m.name, func() error {
				return m.call(ctx)
			}); ok && err == nil && m.name != "storage.DB.RecheckWrites" {
				t.Errorf("%s succeeded", m.name)
			}
		})
	}
	group.Wait()
}

// TestCallsEndWithTheirContext calls each method, and ends its context while it waits for the first answer of the
// database, the second one, and so on. It returns at once.
func TestCallsEndWithTheirContext(t *testing.T) {
	testrun.Slow(t)
	groups := map[string]func(stores []any) []any{
		"reads":   func(s []any) []any { return s[:3] },
		"control": func(s []any) []any { return s[3:4] },
		"records": func(s []any) []any { return s[4:9] },
		"journal": func(s []any) []any { return []any{s[9], s[11]} },
		"grants":  func(s []any) []any { return s[10:11] },
		"ticks":   func(s []any) []any { return s[12:] },
	}
	for name, of := range groups {
		t.Run(name, func(t *testing.T) {
			c := newCaller(t)
			for _, m := range c.methods(of(c.stores())...) {
				if m.name == "storage.DB.Migrate" { // it gives the server some seconds to end a statement
					continue
				}
				first := 1
				if strings.HasPrefix(m.name, "grants.Tick.") && m.name != "grants.Tick.Snapshot" {
					first = 2 // after Snapshot
				}
				for n := first; n <= testrun.Count(5, mostStatements) && c.interrupt(t, m, n); n++ {
					if t.Failed() {
						return // the call keeps its connection
					}
				}
			}
		})
	}
}

// mostStatements is the number of statements of a method in which its context ends. Check has more: one for each
// promise.
const mostStatements = 15

// interrupt calls a method, and ends its context while the n-th unit that it sends is not answered. It reports whether
// there was one.
func (c *caller) interrupt(t *testing.T, m method, n int) (reached bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := make(chan struct{})
	var sent atomic.Int64
	var once sync.Once
	held := false
	c.proxy.Plan(func(s storagetest.Sent) storagetest.Cut {
		if !s.Executes() || sent.Add(1) != int64(n) {
			return storagetest.Pass
		}
		once.Do(func() { held = true; cancel() })
		<-release
		return storagetest.Lose
	})
	_, err := returns(t, m.name, func() error { return m.call(ctx) })
	close(release)
	c.proxy.Plan(nil)
	if held && err == nil && m.name != "storage.DB.TryWrite" { // which has its answer when it rolls back
		t.Errorf("%s, whose context ended during its statement %d, succeeded", m.name, n)
	}
	return held
}
