package storage_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/storagetest"
)

// A methodCase is a call of a method of a store, after its context.
type methodCase struct {
	name string // type and method
	args []any
}

func on(name string, args ...any) methodCase { return methodCase{name, args} }

// A methodsEnv calls methods of stores over the world of TestStatements, and notes what they send and return.
type methodsEnv struct {
	*world
	db     *storagetest.DB
	stores map[string]reflect.Value
	mu     sync.Mutex
	sent   []string // by the current call
}

// TestMethods shows for each method of this package's DB, and of the stores under it, which statements it sends, with
// their arguments, and what it returns: see testdata/methods. TestStatements shows what the statements do, in the same
// world. Each file begins with a new world; a tick is undone, and a change stays for the following cases.
func TestMethods(t *testing.T) {
	testrun.Guard(t)
	t.Parallel()
	e := newMethodsEnv(t)
	called := map[string]bool{}
	for _, file := range []struct {
		name  string
		cases func(at func(minutes int) time.Time) []methodCase
	}{{"reads", readCases}, {"ticks", tickCases}, {"changes", changeCases}, {"journal", journalCases}} {
		e.began = time.Time{}
		e.rebuild()
		e.exec(readable + "; " + sequences)
		var b strings.Builder
		for _, c := range file.cases(func(n int) time.Time { return e.began.Add(time.Duration(n) * time.Minute) }) {
			called[c.name] = true
			fmt.Fprintln(&b, e.did(c))
		}
		golden.File(t, "testdata/methods/"+file.name+".txt", b.String())
	}
	for name, store := range e.stores {
		for m := range store.Type().Methods() {
			method := name + "." + m.Name
			if m.Type.NumIn() > 1 && m.Type.In(1) == contextType && !called[method] && notCalled[method] == "" {
				t.Errorf("no case calls %s", method)
			}
		}
	}
}

// readable changes the rows of a world so that this program can read the journals, a secret is known, a turn is due,
// the job of another was fetched again by a worker that has not its grant, and heartbeats last, however slow the test
// is.
const readable = `update turnkeeper.journal set answer = jsonb_set(answer::jsonb, '{version}', '1') where answer is not null;
	update turnkeeper.replies set calls = '[{"ordinal":1,"id":"round-1-tool-1","name":"pay","effect":"once","state":"failed","duration_ms":1921,"error":"no"}]'
		where id = 401;
	update turnkeeper.turns set due_at = tracked.at('-6 min') where id = 205;
	update turnkeeper.river_job set attempted_by = '{w1,w4}' where id = 501;
	update turnkeeper.api_tokens set sha256 = encode(sha256('secret'), 'hex') where id = 701;
	update turnkeeper.page_sessions set sha256 = encode(sha256('session'), 'hex') where token_id = 701;
	update turnkeeper.worker_heartbeat set beat_at = beat_at + interval '1 hour' where beat_at = tracked.at('0')`

func newMethodsEnv(t *testing.T) *methodsEnv {
	w := newWorld(t)
	e := &methodsEnv{world: w, db: storagetest.Open(t, w.conn.Config().ConnString())}
	core := e.db.Core()
	for name, pool := range map[string]**pgxpool.Pool{"": &core.Pool, "finish: ": &core.Finish,
		"queue: ": &core.Queue} {
		config := (*pool).Config()
		config.ConnConfig.Tracer = multitracer.New(config.ConnConfig.Tracer, &sentTracer{e, name})
		config.ConnConfig.RuntimeParams["timezone"] = "UTC"
		recorded, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(recorded.Close)
		(*pool).Close()
		*pool = recorded
	}
	core.Q = dbsqlc.New(core.Pool)
	o := e.db.Store
	e.stores = map[string]reflect.Value{
		"Views": reflect.ValueOf(o.Views), "Reports": reflect.ValueOf(o.Reports), "Control": reflect.ValueOf(o.Control),
		"Responses": reflect.ValueOf(o.Responses), "TokenStore": reflect.ValueOf(o.TokenStore),
		"WebhookStore": reflect.ValueOf(o.WebhookStore), "MCPStore": reflect.ValueOf(o.MCPStore),
		"AskStore": reflect.ValueOf(o.AskStore), "journal.Store": reflect.ValueOf(e.db.Journals),
		"grants.Store": reflect.ValueOf(e.db.Grants), "DB": reflect.ValueOf(e.db.DB),
		"Tick": reflect.ValueOf((*grants.Tick)(nil)), "Writer": reflect.ValueOf((*journal.Writer)(nil)),
	}
	e.rebuild()
	return e
}

// A sentTracer notes the statements of a pool.
type sentTracer struct {
	env  *methodsEnv
	pool string
}

func (s *sentTracer) note(how, sql string, args []any) {
	name, found := strings.CutPrefix(sql, "-- name: ")
	if found {
		name, _, _ = strings.Cut(name, " ")
	} else {
		name = strings.Join(strings.Fields(sql), " ")
	}
	var shown []string
	for _, arg := range args {
		if v := reflect.ValueOf(arg); v.Kind() == reflect.Slice && v.IsNil() {
			shown = append(shown, "null")
		} else {
			shown = append(shown, s.env.show(v))
		}
	}
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	s.env.sent = append(s.env.sent, strings.TrimSpace(how+s.pool+s.env.plain(name)+" "+strings.Join(shown, ", ")))
}

func (s *sentTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.note("sends ", data.SQL, data.Args)
	return ctx
}

func (s *sentTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *sentTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	how := "sends "
	for _, q := range data.Batch.QueuedQueries {
		s.note(how, q.SQL, q.Arguments)
		how = "with "
	}
	return ctx
}

func (s *sentTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *sentTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// errUndo ends a tick without changes.
var errUndo = errors.New("undone")

// atCommit are methods of a tick whose statements are sent with its commit.
var atCommit = []string{"Note", "RingHolders", "Grant"}

// did calls a method, and returns the case with what it did.
func (e *methodsEnv) did(c methodCase) string {
	e.t.Helper()
	store, method, _ := strings.Cut(c.name, ".")
	if strings.Count(c.name, ".") == 2 {
		at := strings.LastIndex(c.name, ".")
		store, method = c.name[:at], c.name[at+1:]
	}
	var results []string
	call := func(receiver reflect.Value) {
		e.mu.Lock()
		e.sent = nil
		e.mu.Unlock()
		e.now = time.Now()
		results = e.call(receiver.MethodByName(method), c)
	}
	ctx := e.t.Context()
	switch store {
	case "Tick":
		err := e.db.InTick(ctx, func(tick *grants.Tick) error {
			if method != "Snapshot" {
				if _, _, err := tick.Snapshot(ctx, true); err != nil {
					return err
				}
			}
			if call(reflect.ValueOf(tick)); slices.Contains(atCommit, method) {
				return nil
			}
			return errUndo
		})
		if err != nil && !errors.Is(err, errUndo) {
			e.t.Errorf("%s: %v", c.name, err)
		}
	case "Writer":
		call(reflect.ValueOf(e.writer()))
	default:
		call(e.stores[store])
	}
	var args []string
	for _, arg := range c.args {
		args = append(args, e.show(reflect.ValueOf(arg)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	title := strings.TrimSpace(c.name + " " + strings.Join(args, ", "))
	if len(title) > longestTitle {
		title = strings.ToValidUTF8(title[:longestTitle], "") + " ..."
	}
	lines := append([]string{title}, e.sent...)
	return strings.Join(append(lines, results...), "\n    ") + "\n"
}

// longestTitle is where the title of a case is cut.
const longestTitle = 240

// ownGrant is the grant of turn 201 in the world.
const ownGrant turnkeeper.GrantID = "00000000-0000-0000-0000-000000000201"

// writer returns the writer of turn 201.
func (e *methodsEnv) writer() *journal.Writer {
	e.t.Helper()
	record, err := e.db.Load(e.t.Context(), 201, ownGrant)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.db.Writer(record, turnkeeper.Grant{TurnID: 201, GrantID: ownGrant, Token: record.Turn.Token,
		JobID: record.Turn.JobID, WorkerID: record.Turn.WorkerID, Lane: record.Turn.Lane})
}

// call calls a method, and returns its results as lines.
func (e *methodsEnv) call(method reflect.Value, c methodCase) (lines []string) {
	e.t.Helper()
	if !method.IsValid() {
		e.t.Fatalf("there is no method %s", c.name)
	}
	in := []reflect.Value{reflect.ValueOf(e.t.Context())}
	for i, arg := range c.args {
		of := method.Type().In(min(i+1, method.Type().NumIn()-1))
		if method.Type().IsVariadic() && i+1 >= method.Type().NumIn()-1 {
			of = of.Elem()
		}
		if of.Kind() == reflect.Func {
			in = append(in, reflect.MakeFunc(of, func(given []reflect.Value) []reflect.Value {
				lines = append(lines, "gives "+e.show(given[0]))
				return []reflect.Value{reflect.Zero(of.Out(0))}
			}))
		} else if v := reflect.ValueOf(arg); v.IsValid() {
			in = append(in, v.Convert(of))
		} else {
			in = append(in, reflect.Zero(of))
		}
	}
	for _, out := range method.Call(in) {
		switch {
		case out.Type() == errorType && out.IsNil():
		case out.Type() == errorType:
			lines = append(lines, e.plain("error: "+out.Interface().(error).Error()))
		case out.Kind() == reflect.Slice && out.Type().Elem().Kind() != reflect.Uint8:
			for i := range out.Len() {
				lines = append(lines, fmt.Sprintf("returns %d: %s", i, e.show(out.Index(i))))
			}
			if out.Len() == 0 {
				lines = append(lines, "returns none")
			}
		default:
			lines = append(lines, "returns "+e.show(out))
		}
	}
	return lines
}

// unsteady are fields that differ with each run.
var unsteady = []string{"Snapshot.QueryTime", "SpendResult.DayLeft", "StoredParts.Bytes"}

// show returns a value as text.
func (e *methodsEnv) show(v reflect.Value) string {
	return golden.Brief(v, func(of string, v reflect.Value) (string, bool) {
		if slices.Contains(unsteady, of) {
			return "", true
		}
		switch of := v.Interface().(type) {
		case error:
			return e.plain(of.Error()), true
		case time.Time:
			return e.moment(of), true
		case time.Duration:
			return e.span(of), true
		}
		switch {
		case v.Kind() == reflect.String:
			return "'" + e.text(v.String()) + "'", true
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
			return "'" + e.text(string(v.Bytes())) + "'", true
		}
		return "", false
	})
}

var (
	anyHash   = regexp.MustCompile(`[0-9a-f]{64}`)
	anyRandom = regexp.MustCompile(`(?i)[A-Z2-7]{26,}`)
)

// text returns a text without what differs between runs.
func (e *methodsEnv) text(s string) string {
	s = anyHash.ReplaceAllStringFunc(s, func(hash string) string {
		if hash == strings.Repeat(hash[:1], len(hash)) {
			return hash[:4] + "..."
		}
		return "a hash"
	})
	return e.plain(anyRandom.ReplaceAllString(s, "random"))
}

// moment returns a time as the distance from at('0') if it is one of the world, from the times of filled arguments, or
// else from now in minutes.
func (e *methodsEnv) moment(t time.Time) string {
	switch {
	case t.IsZero():
		return "no time"
	case t.Unix() == 0 || t.Year() < 2020 || t.Year() > 2100 || t.Sub(e.began)%time.Second == 0 ||
		t.Equal(e.now.UTC().Truncate(24*time.Hour).Add(24*time.Hour)):
		return e.when(t)
	case t.Sub(golden.Now).Abs() < time.Hour:
		return "filled " + short(t.Sub(golden.Now))
	}
	return "now " + short(t.Sub(e.now).Round(time.Minute))
}

// span returns a duration: of one that a clock gave only its unit.
func (e *methodsEnv) span(d time.Duration) string {
	switch {
	case d%time.Second == 0 || d%time.Millisecond == 0 && d > time.Second && d < 2*time.Second:
		return d.String()
	case d < 0:
		return "about -" + e.span(-d)
	case d < time.Minute:
		return "seconds"
	case d < time.Hour:
		return "minutes"
	case d < 24*time.Hour:
		return "hours"
	}
	return "days"
}
