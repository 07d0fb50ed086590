package env

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/storage/storagetest"
)

// ModelAPIKey is the model server's key in every Env.
const ModelAPIKey = "sk-tests-5f0c2b7e9d1a4c38"

// An Env is everything a test runs Turnkeeper in.
type Env struct {
	T            testing.TB
	Dir          string // working folder, with agents/ and turnkeeper.yaml
	DatabaseURL  string
	DB           *pgxpool.Pool
	Model        *inferencetest.Server
	ModelURL     string // base URL of the model server
	Ledger       *Ledger
	Vars         map[string]string // environment of every process
	Workers      int               // number of workers started
	ClockStepped bool              // the database's clock is set by the test
}

// New makes an Env with an empty inbox and no agent. When the test ends,
// all processes are stopped first, and then every invariant is checked.
func New(t testing.TB) *Env {
	t.Helper()
	SkipInQuick(t)
	return NewOn(t, storagetest.URL(t))
}

// quick are the tests that run with -short: one of each way into the product. make quick leaves out
// tests/api and tests/faults, which take longer to link.
var quick = []string{"TestAToolCallThenText", "TestAKilledWorkersTurnIsTakenOver", "TestTheOpenAIClientOfGo", "TestWebhook"}

// SkipInQuick skips a test with -short, unless it is in quick. New and NewOn call it.
func SkipInQuick(t testing.TB) {
	t.Helper()
	if testing.Short() && !slices.Contains(quick, t.Name()) {
		t.Skip("runs without -short")
	}
}

// NewOn is like New, but uses the given database.
func NewOn(t testing.TB, url string) *Env {
	t.Helper()
	SkipInQuick(t)
	e := &Env{T: t, Dir: t.TempDir(), DatabaseURL: url, Ledger: NewLedger(t), Model: inferencetest.NewServer().Strict()}
	e.ModelURL = e.Model.Start(t)
	e.DB = OpenPool(t, url)
	e.Vars = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": e.Dir, "TMPDIR": os.TempDir(), "NO_COLOR": "1",
		"DATABASE_URL": url, "TEST_API_KEY": ModelAPIKey, "TURNKEEPER_LISTEN": "127.0.0.1:0", "MARKER_LEDGER_URL": e.Ledger.URL,
		"TURNKEEPER_TAKEOVER_AFTER": takeoverAfter, "TURNKEEPER_ASYNC_TIMEOUT": holdTime, "TURNKEEPER_MODEL_IDLE_TIMEOUT": holdTime,
	}
	if err := os.Mkdir(filepath.Join(e.Dir, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf("default_model: test/scripted\nproviders:\n  test:\n    base_url: %s\n    api_key_env: TEST_API_KEY\n", e.ModelURL))
	t.Cleanup(func() { e.CheckInvariants() })
	return e
}

// OpenPool connects the test itself to a database.
func OpenPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	cfg.ConnConfig.RuntimeParams["search_path"] = "turnkeeper"
	cfg.ConnConfig.RuntimeParams["application_name"] = ApplicationName
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// WriteFile writes a file of the working folder.
func (e *Env) WriteFile(name, text string) {
	e.T.Helper()
	if err := os.WriteFile(filepath.Join(e.Dir, name), []byte(text), 0o600); err != nil {
		e.T.Fatal(err)
	}
}

// ReadFile reads a file of the working folder.
func (e *Env) ReadFile(name string) string {
	e.T.Helper()
	text, err := os.ReadFile(filepath.Join(e.Dir, name))
	if err != nil {
		e.T.Fatal(err)
	}
	return string(text)
}

// WriteAgent writes an agent's file. settings are lines of its front matter.
func (e *Env) WriteAgent(name string, settings ...string) {
	e.T.Helper()
	e.WriteFile(filepath.Join("agents", name+".md"), "---\n"+strings.Join(settings, "\n")+"\n---\nYou are "+name+".\n")
}

// MarkerTools is the front matter's line that gives an agent all marker tools.
const MarkerTools = "tools: [mark_none, mark_keyed, mark_once, mark_slow]"

// Environ returns the environment of every process, as os.Environ does.
func (e *Env) Environ() []string {
	var environ []string
	for name, value := range e.Vars {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// StartWorker starts a worker with the marker tools and returns when it takes
// work.
func (e *Env) StartWorker(flags ...string) *Process {
	e.T.Helper()
	w := e.LaunchWorker(flags...)
	w.Await("worker ready")
	return w
}

// LaunchWorker is like StartWorker, but does not wait.
func (e *Env) LaunchWorker(flags ...string) *Process {
	e.T.Helper()
	e.Workers++
	return StartProcess(e.T, fmt.Sprintf("worker %d", e.Workers), e.Dir, e.Environ(), Binary(e.T, "markerworker"), flags...)
}

// takeoverAfter is the silence after which workers count as lost, unless a flag says
// otherwise. A live worker on a busy machine may be silent for seconds. A test need not
// wait for one that it has killed or stopped (see Kill and CountAsLost).
const takeoverAfter = "1m"

// holdTime is how long a test may hold a call before it goes to the background, or a model
// call before it is retried, unless the test says otherwise. Meanwhile the test may start
// other workers.
const holdTime = "1m"

// Kill ends a worker as a power cut would, and makes it count as lost.
func (e *Env) Kill(w *Process) {
	e.T.Helper()
	w.Kill()
	e.CountAsLost(w)
}

// CountAsLost makes a dead or stopped worker count as lost now, as if it had been silent for
// an hour. It also sets the silence that the worker promised to a moment at most, so that a
// heartbeat that is still on its way does not help it. A worker that promised nothing is left
// to the end of its leases.
func (e *Env) CountAsLost(w *Process) {
	e.T.Helper()
	e.Exec(`update worker_heartbeat set beat_at = beat_at - interval '1 hour', takeover_after = least(takeover_after, interval '1 ms')
		where pid = $1`, w.Cmd.Process.Pid)
	e.Exec("notify turnkeeper_inbox")
}

// CountAsAlive undoes CountAsLost for a worker that is about to go on.
func (e *Env) CountAsAlive(w *Process) {
	e.T.Helper()
	e.Exec(`update worker_heartbeat set beat_at = clock_timestamp(), takeover_after = case when takeover_after > interval '0' then $2::text::interval else takeover_after end
		where pid = $1`, w.Cmd.Process.Pid, takeoverAfter)
}

// PauseScheduler keeps the scheduler from granting turns, until ResumeScheduler.
func (e *Env) PauseScheduler(reason string) {
	e.T.Helper()
	if r := e.Turnctl("scheduler", "pause", reason); r.Code != 0 {
		e.T.Fatalf("pause: %s", r.Stderr)
	}
	// A tick that began before the pause may still grant: wait for its lock.
	e.Exec("select pg_advisory_xact_lock(hashtext('turnkeeper.scheduler'))")
}

// ResumeScheduler ends PauseScheduler.
func (e *Env) ResumeScheduler() {
	e.T.Helper()
	if r := e.Turnctl("scheduler", "resume"); r.Code != 0 {
		e.T.Fatalf("resume: %s", r.Stderr)
	}
}

// A Result is what a program wrote and ended with.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// startIsCommitted reports whether the start of the mark's call is committed now.
func (e *Env) startIsCommitted(m Mark) bool {
	var is bool
	err := e.DB.QueryRow(context.Background(), `select exists (select from call_starts where turn_id = $1 and 'round-' || round || '-tool-' || ordinal = $2)`,
		m.Turn, m.Call).Scan(&is)
	return err == nil && is
}

// Run runs a program to its end.
func (e *Env) Run(stdin, program string, args ...string) Result {
	e.T.Helper()
	cmd := exec.Command(Binary(e.T, program), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = e.Dir, e.Environ(), strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		e.T.Fatal(err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// outside are the commands of turnctl that need the working folder: they use agents' files, or files
// that the settings name.
var outside = []string{"agents", "mcp", "doctor", "migrate"}

// inProcess runs a program as Run does, but in this process, because starting one takes longer
// than most of what it does here. Tests of the programs themselves use Run. Commands that need
// the working folder still run as a process, as do those that use a private database.
func (e *Env) inProcess(stdin, program string, args ...string) Result {
	e.T.Helper()
	_, shared := e.Vars["DATABASE_URL"]
	settings, err := os.ReadFile(filepath.Join(e.Dir, "turnkeeper.yaml"))
	needsFolder := slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(outside, arg) })
	if !shared || err != nil || bytes.Contains(settings, []byte("file: ")) || needsFolder {
		return e.Run(stdin, program, args...)
	}
	vars := maps.Clone(e.Vars)
	vars["TURNKEEPER_CONFIG"] = cmp.Or(vars["TURNKEEPER_CONFIG"], filepath.Join(e.Dir, "turnkeeper.yaml"))
	var out, errs bytes.Buffer
	ctx := context.Background()
	code := map[string]shell.Program{"turnctl": turnctl.Program(), "enqueue": enqueue.Program()}[program].Run(ctx, ctx, shell.Environment{
		Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Zone: time.UTC,
		Getenv: func(name string) (string, bool) { value, set := vars[name]; return value, set },
	})
	return Result{out.String(), errs.String(), code}
}

// Enqueue sends a message with the command enqueue and returns its id.
func (e *Env) Enqueue(agent, body string, flags ...string) int64 {
	e.T.Helper()
	args := append([]string{"--agent", agent, "--json"}, flags...)
	r := e.inProcess(body, "enqueue", append(args, "-")...)
	var accepted struct {
		MessageID int64 `json:"message_id"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &accepted); err != nil || r.Code != 0 || accepted.MessageID == 0 {
		e.T.Fatalf("enqueue ended with %d, %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	return accepted.MessageID
}

// Send sends a message with the documented SQL function.
func (e *Env) Send(agent, body string) int64 {
	e.T.Helper()
	return Query[int64](e, "select turnkeeper.enqueue($1, $2)", agent, body)
}

// Turnctl runs turnctl, in this process where that is possible.
func (e *Env) Turnctl(args ...string) Result {
	e.T.Helper()
	return e.inProcess("", "turnctl", args...)
}

// Turnctl runs turnctl -o json and decodes what it prints.
func Turnctl[V any](e *Env, args ...string) V {
	e.T.Helper()
	r := e.inProcess("", "turnctl", append([]string{"-o", "json"}, args...)...)
	if r.Code != 0 {
		e.T.Fatalf("turnctl %s ended with %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	var v V
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
		e.T.Fatalf("turnctl %s printed no JSON: %v\n%s", strings.Join(args, " "), err, r.Stdout)
	}
	return v
}

// Query reads one value.
func Query[V any](e *Env, sql string, args ...any) V {
	e.T.Helper()
	v, err := TryQuery[V](e, sql, args...)
	if err != nil {
		e.T.Fatalf("%s: %v", sql, err)
	}
	return v
}

// TryQuery is like Query, but returns the error.
func TryQuery[V any](e *Env, sql string, args ...any) (v V, err error) {
	rows, err := e.DB.Query(e.T.Context(), sql, args...)
	if err != nil {
		return v, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[V])
}

// Exec executes a statement.
func (e *Env) Exec(sql string, args ...any) {
	e.T.Helper()
	if _, err := e.DB.Exec(e.T.Context(), sql, args...); err != nil {
		e.T.Fatalf("%s: %v", sql, err)
	}
}

// Poll waits until so returns true.
func (e *Env) Poll(what string, so func() bool) {
	e.T.Helper()
	pause := minPause
	for end := time.Now().Add(Patience); !so(); <-After(pause) {
		pause = min(pause*5/4, maxPause)
		if time.Now().After(end) {
			e.T.Fatalf("waited in vain: %s", what)
		}
	}
}

// The shortest and the longest pause between two looks. Pauses grow, because what takes
// long need not be seen at once.
const minPause, maxPause = 10 * time.Millisecond, 150 * time.Millisecond

// Await waits until the query returns true. While the database is unavailable, it retries.
func (e *Env) Await(what, sql string, args ...any) {
	e.T.Helper()
	over := time.After(Patience)
	for pause := minPause; ; pause = min(pause*5/4, maxPause) {
		yes, err := TryQuery[bool](e, sql, args...)
		if yes {
			return
		}
		if wrong, ok := errors.AsType[*pgconn.PgError](err); ok && !strings.HasPrefix(wrong.Code, "57P") {
			e.T.Fatalf("%s: %v", sql, err)
		}
		select {
		case <-After(pause):
		case <-over:
			e.T.Fatalf("waited in vain: %s", what)
		}
	}
}

// AwaitClosed waits until all of the messages are closed.
func (e *Env) AwaitClosed(ids ...int64) {
	e.T.Helper()
	if len(ids) == 0 {
		return
	}
	e.Await(fmt.Sprintf("the messages %v are closed", ids),
		"select count(*) = cardinality($1::bigint[]) from messages where id = any($1::bigint[]) and closed_at is not null", ids)
}

// AwaitRequests waits until the model server got n requests.
func (e *Env) AwaitRequests(n int) {
	e.T.Helper()
	if err := e.Model.Await(e.T.Context(), n); err != nil {
		e.T.Fatal(err)
	}
}

// WantRequests fails the test if the model server did not get exactly n requests.
func (e *Env) WantRequests(n int) []inferencetest.Recorded {
	e.T.Helper()
	all := e.Model.Requests()
	if len(all) != n {
		e.T.Errorf("the model was asked %d times, not %d", len(all), n)
	}
	return all
}

// Rows returns the rows of every table of the database as text, by table.
func (e *Env) Rows() map[string]string {
	e.T.Helper()
	ctx := context.Background()
	rows, err := e.DB.Query(ctx, `
		select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables
		where schemaname not in ('pg_catalog', 'information_schema')`)
	if err != nil {
		e.T.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 15 {
		e.T.Fatalf("the tables are %v, %v", tables, err)
	}
	all := map[string]string{}
	for _, table := range tables {
		all[table] = Query[string](e, "select coalesce(string_agg(t::text, E'\\n'), '') from "+table+" t")
	}
	return all
}

// ApplicationName is the application_name of the test's own connections.
const ApplicationName = "the test"
