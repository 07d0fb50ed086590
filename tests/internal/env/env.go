// Package env is the environment of the black-box tests. It builds the programs and runs them as
// processes against a real Postgres, a scripted model server and a ledger that counts what tools
// did.
//
// A test makes an Env with New. Each Env has its own database and folder. When the test ends, every
// invariant is checked (Env.CheckInvariants). The test packages share nothing else, so go test can
// run and cache each of them separately. Each of them calls Main from TestMain.
package env

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/chosen"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

// ModelAPIKey is the model server's key in every Env.
const ModelAPIKey = "sk-tests-5f0c2b7e9d1a4c38"

// MarkerTools is the line of the front matter that gives an agent the marker tools.
const MarkerTools = "tools: [mark_none, mark_keyed, mark_once, mark_slow]"

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
	ClockStepped bool              // the test sets the clock of the database

	store *storeKeeper // nil: Show and the checks use turnctl
}

// New makes an Env with an empty inbox and no agent. When the test ends, all processes are stopped,
// and then every invariant is checked.
func New(t testing.TB) *Env {
	t.Helper()
	SkipInQuick(t)
	c, url := storagetest.Again(t, "", openClient)
	return newEnv(t, url, c)
}

// NewOn is like New, but uses the database at url.
func NewOn(t testing.TB, url string) *Env {
	t.Helper()
	SkipInQuick(t)
	c, err := openClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return newEnv(t, url, c)
}

func newEnv(t testing.TB, url string, c *client) *Env {
	t.Helper()
	e := &Env{T: t, Dir: t.TempDir(), DatabaseURL: url, DB: c.pool, Ledger: NewLedger(t),
		Model: inferencetest.NewServer().Strict(), store: c.store}
	e.ModelURL = e.Model.Start(t)
	e.Vars = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": e.Dir, "TMPDIR": os.TempDir(), "NO_COLOR": "1",
		"DATABASE_URL": url, "TEST_API_KEY": ModelAPIKey, "TURNKEEPER_LISTEN": "127.0.0.1:0",
		"MARKER_LEDGER_URL":         e.Ledger.URL,
		"TURNKEEPER_TAKEOVER_AFTER": takeoverAfter, "TURNKEEPER_POLL_INTERVAL": pollInterval,
		"TURNKEEPER_ASYNC_TIMEOUT": holdTime, "TURNKEEPER_MODEL_IDLE_TIMEOUT": holdTime,
	}
	if err := os.Mkdir(filepath.Join(e.Dir, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	e.WriteFile("turnkeeper.yaml",
		fmt.Sprintf(
			"default_model: test/scripted\nproviders:\n  test:\n    base_url: %s\n    api_key_env: TEST_API_KEY\n    separates_reasoning: true\n", e.ModelURL))
	t.Cleanup(func() { e.CheckInvariants() })
	return e
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

// WriteAgent writes the file of an agent. settings are lines of its front matter.
func (e *Env) WriteAgent(name string, settings ...string) {
	e.T.Helper()
	e.WriteFile(filepath.Join("agents", name+".md"), "---\n"+strings.Join(settings, "\n")+"\n---\nYou are "+name+".\n")
}

// Environ returns the environment of every process, as os.Environ does.
func (e *Env) Environ() []string {
	var environ []string
	for name, value := range e.Vars {
		environ = append(environ, name+"="+value)
	}
	if testrun.RaceDetector {
		environ = append(environ, testrun.EndAtOnce)
	}
	for _, name := range []string{chosen.Variable, chosen.ReachVariable} {
		if value, set := syscall.Getenv(name); set { // not os.Getenv: the result of a test would depend on it
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}
