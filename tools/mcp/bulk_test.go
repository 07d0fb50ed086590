package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"turnkeeper/internal/membudget"
	"turnkeeper/internal/testrun"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

const bulkVariable = "BULK_MCP_SERVER"

// serveBulk is the main function of a process that sends bulky answers. It knows the protocol only.
// Its argument is stdio, json or sse.
func serveBulk() {
	if os.Args[1] == "stdio" {
		in, out := bufio.NewReader(os.Stdin), bufio.NewWriterSize(os.Stdout, 1<<20)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			if writeBulk(out, line) {
				_, _ = out.WriteString("\n")
				_ = out.Flush()
			}
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stdout, "http://"+listener.Addr().String())
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, _ := io.ReadAll(r.Body)
		sse := os.Args[1] == "sse"
		w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[sse])
		out := bufio.NewWriterSize(w, 1<<20)
		defer func() { _ = out.Flush() }()
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case !strings.Contains(string(asked), `"id"`):
			w.WriteHeader(http.StatusAccepted)
			return
		case sse:
			_, _ = out.WriteString("data: ")
		}
		writeBulk(out, asked)
		if sse {
			_, _ = out.WriteString("\n\n")
		}
	})))
}

// writeBulk writes the answer to a request. It returns false if there is none.
func writeBulk(out *bufio.Writer, line []byte) bool {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Arguments struct{ Kind string } }
	}
	_ = json.Unmarshal(line, &m)
	result := `{}`
	switch m.Method {
	case "initialize":
		result =
			`{"protocolVersion":"2025-11-25","serverInfo":{"name":"bulk","version":"1"},"capabilities":{"tools":{}}}`
	case "tools/list":
		result = `{"tools":[{"name":"bulk","inputSchema":{"type":"object"}}]}`
		if os.Getenv(bulkVariable) == "list" {
			item :=
				`{"name":"t","description":"x","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`
			result = `{"tools":[` + strings.Repeat(item+",", 100_000) + item + `]}`
		}
	case "tools/call":
		result = bulk(m.Params.Arguments.Kind)
	case "server/discover":
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		return true
	}
	if m.ID == nil {
		return false
	}
	fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	return true
}

const bulkBytes = 15_000_000

// bulk returns a result of about bulkBytes.
func bulk(kind string) string {
	many := func(item string) string {
		return "[" + strings.Repeat(item+",", bulkBytes/(len(item)+1)) + item + "]"
	}
	structured := func(value string) string { return `{"content":[],"structuredContent":{"x":` + value + `}}` }
	switch kind {
	case "arrays":
		return structured(many("[]"))
	case "nested":
		return structured(many("[[[[[]]]]]"))
	case "objects":
		return structured(many(`{}`))
	case "members":
		return structured(many(`{"":0}`))
	case "strings":
		return structured(many(`"x"`))
	case "numbers":
		return structured(many(`1`))
	case "deep":
		return structured(strings.Repeat("[", bulkBytes/2) + strings.Repeat("]", bulkBytes/2))
	case "contents":
		return `{"content":` + many(`{"type":"text","text":""}`) + `}`
	case "texts": // JSON in a text is compared with the structured content
		text, _ := json.Marshal(many("[]"))
		return `{"content":[{"type":"text","text":` + string(text) + `}],"structuredContent":{}}`
	case "most": // near the limit of memory
		return structured("[" + strings.Repeat(`{"":0},`, 160_000) + "0]")
	case "text":
		return `{"content":[{"type":"text","text":"` + strings.Repeat("x", bulkBytes) + `"}]}`
	}
	return `{"content":[{"type":"text","text":"ok"}]}`
}

func bulkClient(t *testing.T, transport, mode string, memory *membudget.Budget) *mcp.Client {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := mcp.Server{Name: "h", ConnectTimeout: patience, Effect: "once"}
	if transport == "stdio" {
		server.Command, server.Env = []string{self, transport}, []string{bulkVariable + "=" + mode}
	} else {
		cmd := exec.CommandContext(t.Context(), self, transport)
		cmd.Env = []string{bulkVariable + "=" + mode}
		stdin, _ := cmd.StdinPipe()
		stdout, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		server.URL = strings.TrimSpace(line) + "/mcp"
	}
	c := mcp.New(mcp.Config{Servers: []mcp.Server{server}, Store: newMemStore(), Memory: memory})
	t.Cleanup(c.Close)
	return c
}

// peak returns by how many bytes the heap, with its garbage, grew at most while run ran.
func peak(run func()) uint64 {
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	runtime.GC()
	before, most := heap(), uint64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-tick.C:
				most = max(most, heap())
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	run()
	close(stop)
	<-done
	return max(most, before) - before
}

// TestBulkyAnswers checks that an answer of 15 MB takes little memory, over every transport, whatever
// values it has, and that the session goes on.
func TestBulkyAnswers(t *testing.T) {
	refused := map[string]string{
		"arrays": "1000000 JSON values", "nested": "1000000 JSON values", "objects": "bytes of memory",
		"members": "bytes of memory",
		"strings": "1000000 JSON values", "numbers": "1000000 JSON values", "deep": "128 levels",
		"contents": "bytes of memory", "texts": "", "text": "", "most": "",
	}
	for _, transport := range testrun.Sample([]string{"stdio", "json", "sse"}, 1) {
		t.Run(transport, func(t *testing.T) {
			memory := membudget.New(256<<20, mcp.MaxResultMemory)
			c := bulkClient(t, transport, "yes", memory)
			for kind, says := range refused {
				var got tools.RunResult
				grown := peak(func() { got = callBulk(t, c, memory, kind) })
				t.Logf("%s: %d MiB", kind, grown>>20)
				if grown > 300<<20 {
					t.Errorf("%s takes %d MiB", kind, grown>>20)
				}
				if says == "" && got.Outcome != tools.Succeeded || says != "" &&
					(got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, says)) {
					t.Errorf("%s: %s: %.300q", kind, got.Outcome, got.Result.Text)
				}
			}
			if got := callBulk(t, c, memory, ""); got.Outcome != tools.Succeeded || got.Result.Text != "ok" {
				t.Errorf("the session does not go on: %q", got.Result.Text)
			}
			if use := memory.Use(); use != (membudget.Use{}) {
				t.Errorf("%+v", use)
			}
		})
	}
}

// callBulk calls the tool like a turn, which releases the memory when the result is recorded.
func callBulk(t *testing.T, c *mcp.Client, memory *membudget.Budget, kind string) tools.RunResult {
	account := memory.Account()
	defer account.Close()
	arguments, _ := json.Marshal(map[string]string{"kind": kind})
	return tools.Execute(membudget.With(t.Context(), account.Lease()), c.Tool("h", "bulk"),
		tools.Call{Lane: "lane", Arguments: arguments, IdempotencyKey: "key"},
		tools.ExecuteOptions{Timeout: 6 * patience})
}

// TestManyBulkyAnswersAtOnce checks that answers at once take no more than the budget and some garbage.
func TestManyBulkyAnswersAtOnce(t *testing.T) {
	cases := []struct {
		transport, kind string
		outcome         tools.Outcome
	}{{"stdio", "arrays", tools.Failed}, {"sse", "most", tools.Succeeded}, {"json", "most", tools.Succeeded},
		{"stdio", "most", tools.Succeeded}, {"stdio", "text", tools.Succeeded}}
	for _, c := range testrun.Sample(cases, 2) {
		t.Run(c.transport+" "+c.kind, func(t *testing.T) {
			memory := membudget.New(192<<20, mcp.MaxResultMemory)
			client := bulkClient(t, c.transport, "yes", memory)
			callBulk(t, client, memory, "")
			grown := peak(func() {
				var group sync.WaitGroup
				for range 6 {
					group.Go(func() {
						if got := callBulk(t, client, memory, c.kind); got.Outcome != c.outcome {
							t.Errorf("%s: %.300q", got.Outcome, got.Result.Text)
						}
					})
				}
				group.Wait()
			})
			if t.Logf("%d MiB", grown>>20); grown > 600<<20 {
				t.Errorf("six take %d MiB", grown>>20)
			}
			if use := memory.Use(); use != (membudget.Use{}) {
				t.Errorf("%+v", use)
			}
		})
	}
}

// TestAHundredThousandTools checks that a list of 100,000 tools is refused before it is decoded.
func TestAHundredThousandTools(t *testing.T) {
	for _, transport := range []string{"stdio", "json", "sse"} {
		t.Run(transport, func(t *testing.T) {
			memory := membudget.New(192<<20, mcp.MaxResultMemory)
			c := bulkClient(t, transport, "list", memory)
			var got tools.RunResult
			grown := peak(func() { got = callBulk(t, c, memory, "") })
			if t.Logf("%d MiB", grown>>20); grown > 100<<20 {
				t.Errorf("the list takes %d MiB", grown>>20)
			}
			if want := "it lists more than 2000 tools"; got.Outcome != tools.Failed ||
				!strings.Contains(got.Result.Text, want) {
				t.Errorf("%s: %q, want %q", got.Outcome, got.Result.Text, want)
			}
			if use := memory.Use(); use != (membudget.Use{}) {
				t.Errorf("%+v", use)
			}
		})
	}
}
