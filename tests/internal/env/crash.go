package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/pause"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// A Crash is a fault at a fault point, while an agent uses a tool.
type Crash struct{ Point, Fault, Tool string }

// A CrashEnv is an Env whose programs can be paused at a fault point, and connect to the database
// through a proxy that can cut them off.
type CrashEnv struct {
	*Env
	Proxy    *storagetest.Proxy
	ProxyURL string // the database's address through the proxy
	Hook     *HookServer
	tool     string
}

// CrashTools is the line of the front matter that gives an agent of a CrashEnv its tools.
const CrashTools = "tools: [mark_none, mark_keyed, mark_once, mark_sure, mark_large, note_write, mark_far_none, mark_far_keyed, mark_far_once]"

// NewCrash makes a CrashEnv whose model calls the tool twice and then replies.
func NewCrash(t *testing.T, c Crash) *CrashEnv {
	t.Helper()
	e := &CrashEnv{Env: New(t), Hook: NewHookServer(t, c.Point), tool: c.Tool}
	e.Ledger.started = e.startIsCommitted
	e.Proxy, e.ProxyURL = storagetest.NewProxy(t, e.DatabaseURL)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		label := NewestMessage(r)
		if RoundOf(r) == 1 {
			return inferencetest.Calls(e.call(label+" 1"), e.call(label+" 2"))
		}
		return inferencetest.Text("Done: " + label + "\n" + strings.Repeat("It took a while. ", 200))
	})
	return e
}

// call returns a call of the crash's tool.
func (e *CrashEnv) call(label string) inferencetest.Call {
	c := MarkerCall(e.tool, label)
	if e.tool == "note_write" {
		c.Arguments = fmt.Sprintf(`{"name": %q, "text": "x"}`, strings.ReplaceAll(label, " ", "-"))
	}
	c.ID = "call_" + strings.ReplaceAll(label, " ", "_")
	return c
}

// Register writes and registers an agent before any worker runs.
func (e *CrashEnv) Register(name string, settings ...string) {
	e.T.Helper()
	e.WriteAgent(name, append([]string{CrashTools}, settings...)...)
	e.RegisterFile(name)
}

// RegisterFile registers the file of an agent, as a worker does when it starts.
func (e *CrashEnv) RegisterFile(name string) {
	e.T.Helper()
	d, err := parseAgent(name, filepath.Join(e.Dir, "agents", name+".md"))
	if err != nil {
		e.T.Fatal(err)
	}
	store, err := operate.Open(e.T.Context(), storage.Options{URL: e.DatabaseURL})
	if err != nil {
		e.T.Fatal(err)
	}
	defer store.Close()
	err = store.RegisterAgents(e.T.Context(), []turnkeeper.AgentRegistration{{Name: name, Definition: d.Source,
		DefinitionHash: d.Hash}})
	if err != nil {
		e.T.Fatal(err)
	}
}

func parseAgent(name, file string) (*agentdef.Definition, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return agentdef.Parse(name+".md", source)
}

// StartFaulty starts a program that pauses at the point.
func (e *CrashEnv) StartFaulty(program string, args ...string) *Process {
	e.T.Helper()
	environ := append(e.Environ(), e.Hook.Environ()...)
	environ = append(environ, "DATABASE_URL="+e.ProxyURL)
	return StartProcess(e.T, "faulty "+program, e.Dir, environ, Binary(e.T, program), args...)
}

// AtTheGate is the from clause of a query for the sessions of this database that wait at a Gate.
const AtTheGate = `from pg_locks where locktype = 'advisory' and objid = 4711 and not granted
	and database = (select oid from pg_database where datname = current_database())`

// Gate blocks every write of a kind, such as "insert or update", to a row that meets the condition. open
// unblocks them and all later ones.
func (e *CrashEnv) Gate(table, write, condition string) (open func()) {
	e.T.Helper()
	e.Exec(`create function gate() returns trigger language plpgsql as $$
		begin perform pg_advisory_xact_lock_shared(4711); return coalesce(new, old); end $$;
		create trigger gate before ` + write + ` on ` + table + `
		for each row when (` + condition + `) execute function gate()`)
	holder, err := pgx.Connect(e.T.Context(), e.DatabaseURL)
	if err != nil {
		e.T.Fatal(err)
	}
	if _, err := holder.Exec(e.T.Context(), "select pg_advisory_lock(4711)"); err != nil {
		e.T.Fatal(err)
	}
	return func() {
		if err := holder.Close(e.T.Context()); err != nil {
			e.T.Error(err)
		}
	}
}

// ApproveAll approves every ask until stop is called.
func (e *CrashEnv) ApproveAll() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause.For(ctx, 20*time.Millisecond) == nil {
			// An error means that the ask is closed, or that the server is away: it is tried again.
			_,
				_ = e.DB.Exec(ctx,
				"select turnkeeper.answer_ask(id, 'approved', 'bob') from turnkeeper.asks where state = 'open'")
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
