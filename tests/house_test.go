package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/storage/storagetest"
)

// apiKey is the model server's key in every house.
const apiKey = "sk-house-5f0c2b7e9d1a4c38"

// A house is all that a test runs Turnkeeper in.
type house struct {
	t       testing.TB
	dir     string // working folder, with agents/ and turnkeeper.yaml
	url     string // of the database
	db      *pgxpool.Pool
	model   *inferencetest.Server
	address string // base URL of the model server
	ledger  *ledger
	env     map[string]string // of every process
	workers int
	stepped bool // the database's clock is set by the test
}

// newHouse makes a house with an empty inbox and no agent. When the test ends,
// all processes are stopped first, and then every invariant is checked.
func newHouse(t testing.TB) *house { return newHouseOn(t, storagetest.URL(t)) }

func newHouseOn(t testing.TB, url string) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), url: url, ledger: newLedger(t), model: inferencetest.NewServer().Strict()}
	h.address = h.model.Start(t)
	h.db = open(t, url)
	h.env = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": h.dir, "TMPDIR": os.TempDir(), "NO_COLOR": "1",
		"DATABASE_URL": url, "TEST_API_KEY": apiKey, "TURNKEEPER_LISTEN": "127.0.0.1:0", "MARKER_LEDGER_URL": h.ledger.url,
	}
	if err := os.Mkdir(filepath.Join(h.dir, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.write("turnkeeper.yaml", fmt.Sprintf("default_model: test/scripted\nproviders:\n  test:\n    base_url: %s\n    api_key_env: TEST_API_KEY\n", h.address))
	t.Cleanup(func() { h.checkInvariants() })
	return h
}

func open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	cfg.ConnConfig.RuntimeParams["search_path"] = "turnkeeper"
	cfg.ConnConfig.RuntimeParams["application_name"] = ownName
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// write writes a file of the working folder.
func (h *house) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) read(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// agent writes an agent's file. settings are lines of its front matter.
func (h *house) agent(name string, settings ...string) {
	h.t.Helper()
	h.write(filepath.Join("agents", name+".md"), "---\n"+strings.Join(settings, "\n")+"\n---\nYou are "+name+".\n")
}

// marks is the front matter's line that gives an agent all marker tools.
const marks = "tools: [mark_none, mark_keyed, mark_once, mark_slow]"

func (h *house) environment() []string {
	var env []string
	for name, value := range h.env {
		env = append(env, name+"="+value)
	}
	return env
}

// startWorker starts a worker with the marker tools and returns when it takes
// work.
func (h *house) startWorker(flags ...string) *process {
	h.t.Helper()
	w := h.launchWorker(flags...)
	w.await("worker ready")
	return w
}

// launchWorker is startWorker that does not wait.
func (h *house) launchWorker(flags ...string) *process {
	h.t.Helper()
	h.workers++
	return startProcess(h.t, fmt.Sprintf("worker %d", h.workers), h.dir, h.environment(), binary(h.t, "markerworker"), flags...)
}

// A run is what a program wrote and ended with.
type run struct {
	stdout, stderr string
	code           int
}

// startIsOnRecord says whether a call was started by what is committed now.
func (h *house) startIsOnRecord(m mark) bool {
	var is bool
	err := h.db.QueryRow(context.Background(), `select exists (select from call_starts where turn_id = $1 and 'round-' || round || '-tool-' || ordinal = $2)`,
		m.Turn, m.Call).Scan(&is)
	return err == nil && is
}

// run runs a program to its end.
func (h *house) run(stdin, program string, args ...string) run {
	h.t.Helper()
	cmd := exec.Command(binary(h.t, program), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = h.dir, h.environment(), strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		h.t.Fatal(err)
	}
	return run{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// enqueue sends a message with the command enqueue and returns its id.
func (h *house) enqueue(agent, body string, flags ...string) int64 {
	h.t.Helper()
	args := append([]string{"--agent", agent, "--json"}, flags...)
	r := h.run(body, "enqueue", append(args, "-")...)
	var accepted struct {
		MessageID int64 `json:"message_id"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &accepted); err != nil || r.code != 0 || accepted.MessageID == 0 {
		h.t.Fatalf("enqueue ended with %d, %v\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	return accepted.MessageID
}

// send sends a message with the documented SQL function.
func (h *house) send(agent, body string) int64 {
	h.t.Helper()
	return query[int64](h, "select turnkeeper.enqueue($1, $2)", agent, body)
}

// turnctl runs turnctl -o json and decodes what it prints.
func turnctl[V any](h *house, args ...string) V {
	h.t.Helper()
	r := h.run("", "turnctl", append([]string{"-o", "json"}, args...)...)
	if r.code != 0 {
		h.t.Fatalf("turnctl %s ended with %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	var v V
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		h.t.Fatalf("turnctl %s printed no JSON: %v\n%s", strings.Join(args, " "), err, r.stdout)
	}
	return v
}

// query reads one value.
func query[V any](h *house, sql string, args ...any) V {
	h.t.Helper()
	v, err := ask[V](h, sql, args...)
	if err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func ask[V any](h *house, sql string, args ...any) (v V, err error) {
	rows, err := h.db.Query(h.t.Context(), sql, args...)
	if err != nil {
		return v, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[V])
}

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.db.Exec(h.t.Context(), sql, args...); err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
}

// poll returns when what it asks for is so.
func (h *house) poll(what string, so func() bool) {
	h.t.Helper()
	for end := time.Now().Add(patience); !so(); <-after(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// await returns when the query says true. A database that is away has not said
// it yet.
func (h *house) await(what, sql string, args ...any) {
	h.t.Helper()
	over := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := ask[bool](h, sql, args...)
		if yes {
			return
		}
		if wrong, ok := errors.AsType[*pgconn.PgError](err); ok && !strings.HasPrefix(wrong.Code, "57P") {
			h.t.Fatalf("%s: %v", sql, err)
		}
		select {
		case <-tick.C:
		case <-over:
			h.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// awaitClosed returns when every one of the messages is closed.
func (h *house) awaitClosed(ids ...int64) {
	h.t.Helper()
	if len(ids) == 0 {
		return
	}
	h.await(fmt.Sprintf("the messages %v are closed", ids),
		"select count(*) = cardinality($1::bigint[]) from messages where id = any($1::bigint[]) and closed_at is not null", ids)
}

// awaitRequests returns when the model server got n requests.
func (h *house) awaitRequests(n int) {
	h.t.Helper()
	if err := h.model.Await(h.t.Context(), n); err != nil {
		h.t.Fatal(err)
	}
}

// requests fails the test if the model server did not get exactly n requests.
func (h *house) requests(n int) []inferencetest.Recorded {
	h.t.Helper()
	all := h.model.Requests()
	if len(all) != n {
		h.t.Errorf("the model was asked %d times, not %d", len(all), n)
	}
	return all
}

// A shown turn is what "turnctl show" says of it, as far as tests look.
type shown struct {
	ID         int64   `json:"id"`
	State      string  `json:"state"`
	StopReason *string `json:"continuation_stop_reason"`
	Rounds     int     `json:"inference_round_count"`
	Charged    int     `json:"charged_round_count"`
	Executed   int     `json:"executed_tool_call_count"`
	Dispatches int     `json:"dispatch_count"`
	Losses     int     `json:"lost_worker_count"`
	DurationMs *int64  `json:"turn_duration_ms"`
	ErrorClass string  `json:"error_class"`
	Error      string  `json:"error"`
	Message    struct {
		ID       int64  `json:"id"`
		State    string `json:"state"`
		Attempts int    `json:"attempts"`
	} `json:"message"`
	Reply *struct {
		Outcome string `json:"outcome"`
		Body    string `json:"body"`
	} `json:"reply"`
	DispatchLog []struct {
		Outcome  *string `json:"outcome"`
		WorkerID string  `json:"worker_id"`
	} `json:"dispatches"`
	RoundLog []struct {
		Round int         `json:"round"`
		Text  string      `json:"text"`
		Calls []shownCall `json:"tool_calls"`
	} `json:"rounds"`
}

type shownCall struct {
	ID         string `json:"id"`
	WireID     string `json:"tool_call_id"`
	Name       string `json:"name"`
	State      string `json:"state"`
	Starts     int    `json:"starts"`
	Result     string `json:"result"`
	LateResult string `json:"late_result"`
}

// turnOf shows the newest turn of a message, once that is closed.
func (h *house) turnOf(message int64) shown {
	h.t.Helper()
	h.awaitClosed(message)
	return h.show(query[int64](h, "select turn_id from messages where id = $1", message))
}

func (h *house) show(turn int64) shown {
	h.t.Helper()
	return turnctl[shown](h, "show", fmt.Sprint(turn))
}

func (s shown) calls() (all []shownCall) {
	for _, r := range s.RoundLog {
		all = append(all, r.Calls...)
	}
	return all
}

// ended fails the test if the turn did not end like this.
func (h *house) ended(s shown, state, stop string, rounds int) {
	h.t.Helper()
	reason := "null"
	if s.StopReason != nil {
		reason = *s.StopReason
	}
	if s.State != state || reason != stop || s.Rounds != rounds {
		h.t.Errorf("turn %d ended %s, %s after %d rounds (%s %s); expected %s, %s after %d",
			s.ID, s.State, reason, s.Rounds, s.ErrorClass, s.Error, state, stop, rounds)
	}
}

// replied fails the test if the reply is not exactly this.
func (h *house) replied(s shown, body string) {
	h.t.Helper()
	if s.Reply == nil || s.Reply.Body != body {
		h.t.Errorf("turn %d has the reply %+v, not %q", s.ID, s.Reply, body)
	}
}
