package mcp_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
	"turnkeeper/tools/mcp/mcpdef"
)

// The transports that tests run with.
const (
	overStdio = "stdio"
	overHTTP  = "http"
)

// A bench has a client of one hostile server.
type bench struct {
	*mcp.Client
	t     *testing.T
	dir   string
	http  *hostileHTTP // nil over stdio
	store *memStore

	declared mcp.Server
}

func newBench(t *testing.T, transport, mode string, settings ...func(*mcp.Server)) *bench {
	t.Helper()
	return newBenchWithin(t, func(*mcp.Limits) {}, transport, mode, settings...)
}

// newBenchWithin returns a bench whose client has other limits than forTests.
func newBenchWithin(t *testing.T, limit func(*mcp.Limits), transport, mode string,
	settings ...func(*mcp.Server)) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), store: newMemStore()}
	server := b.server(transport, mode)
	for _, set := range settings {
		set(&server)
	}
	b.declared = server
	b.Client = mcp.NewLimited(mcp.Config{Servers: []mcp.Server{server}, Store: b.store}, forTests, limit)
	t.Cleanup(func() {
		b.Close()
		if b.http != nil {
			b.http.CloseClientConnections()
			b.http.Close()
		}
	})
	return b
}

func (b *bench) server(transport, mode string) mcp.Server {
	s := mcp.Server{Name: "h", ConnectTimeout: patience}
	if transport == overHTTP {
		b.http = newHostileHTTP(b.dir, "http")
		s.URL = b.http.URL + "/mcp"
		return s
	}
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	s.Command, s.Env = []string{self, b.dir, mode}, []string{hostileVariable + "=yes"}
	return s
}

// forTests sets small sizes, short pauses and timeouts far longer than any test
// needs. Tests of servers that exceed a timeout set a shorter one.
func forTests(l *mcp.Limits) {
	l.Frame, l.Drop = 1<<20, 4<<20
	l.Ping, l.Reason, l.Progress = patience, patience, patience
	l.Relist, l.LastRelist, l.Reread, l.FirstPause = 10*time.Millisecond, time.Second, 10*time.Millisecond,
		20*time.Millisecond
}

func both(t *testing.T, run func(t *testing.T, transport string)) {
	for _, transport := range []string{overStdio, overHTTP} {
		t.Run(transport, func(t *testing.T) { run(t, transport) })
	}
}

func effect(e turnkeeper.Effect) func(*mcp.Server) {
	return func(s *mcp.Server) { s.Effect = e }
}

// call calls a tool like a worker.
func (b *bench) call(tool, arguments string) tools.RunResult {
	return b.callAs(context.Background(), tools.Call{Lane: "lane"}, tool, arguments, patience)
}

func (b *bench) callAs(ctx context.Context, call tools.Call, tool, arguments string,
	timeout time.Duration) tools.RunResult {
	call.Arguments, call.IdempotencyKey = json.RawMessage(arguments), "key"
	return tools.Execute(ctx, b.Tool("h", tool), call, tools.ExecuteOptions{Timeout: timeout})
}

// answers calls a tool that must succeed.
func (b *bench) answers(tool, want string) {
	b.t.Helper()
	if got := b.call(tool, `{}`); got.Outcome != tools.Succeeded || got.Result.Text != want {
		b.t.Errorf("%s: %s: %q, want %q", tool, got.Outcome, got.Result.Text, want)
	}
}

// await polls until holds returns true. It is for what no event reports, such
// as a file that another process writes.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: it did not come to that", what)
		}
	}
}

// memStore stores definitions in memory.
type memStore struct {
	mu    sync.Mutex
	tools map[string][]mcpdef.Tool
}

func newMemStore() *memStore {
	return &memStore{tools: map[string][]mcpdef.Tool{}}
}

func (m *memStore) MCPTools(_ context.Context, server string) ([]mcpdef.Tool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tools[server], nil
}

func (m *memStore) SeeMCPTools(_ context.Context, server string, seen []mcpdef.Tool) ([]mcpdef.Tool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tools[server] = mcp.Merge(m.tools[server], seen, time.Now())
	return m.tools[server], nil
}

// pin accepts the current definitions of all tools.
func (m *memStore) pin(server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pinned := append([]mcpdef.Tool{}, m.tools[server]...)
	for i := range pinned {
		pinned[i].Pinned = pinned[i].Seen
	}
	m.tools[server] = pinned
}
