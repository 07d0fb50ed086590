package setup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/redact"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
	"turnkeeper/tools/program"
)

const hush = "Q7wZ9kLmX2vB4nTpR8sY"

// A cutter is a tool that shows only a part of a text.
type cutter struct {
	from, to int // the part of the text that is shown, in characters
	tool     func(t *testing.T, text string) tools.Tool
	args     string
	filler   string // around the secret; empty: .
}

// TestNoPartOfASecretRemainsAtACut cuts a secret in two wherever a tool shows only a part of what it was given: neither
// part may show. Package mcp has such a test for what MCP servers say.
func TestNoPartOfASecretRemainsAtACut(t *testing.T) {
	const much = turnkeeper.MaxOutputBytes
	for name, c := range map[string]cutter{
		"the output of a program":             {to: 100, tool: printing("1", 0, 100)},
		"the output of a program that fails":  {to: 1000, tool: printing("1", 1, 0)},
		"the little output of one that fails": {to: 100, tool: printing("1", 1, 100)},
		"what a program complains":            {from: 20_000 - 4000, to: 20_000, tool: printing("2", 1, 0)},
		"the error of a web server":           {to: 1000, tool: serving},
		"an error in long characters":         {to: 1000, tool: serving, filler: "\U0001D11E"},
		"a part of a file": {from: 5000, to: 5100, tool: reading,
			args: `{"path":"f","offset":5000,"limit":100}`},
		"a text": {to: much, tool: returning(func(text string) tools.Result {
			return tools.Result{Text: text}
		})},
		"a body": {to: much, tool: returning(func(text string) tools.Result {
			return tools.Result{Body: strings.NewReader(text)}
		})},
		"a text that its tool has cut": {to: 100, tool: returning(func(text string) tools.Result {
			return tools.Result{Text: text[:100], Incomplete: true}
		})},
		"a panic": {to: 500, tool: returning(func(text string) tools.Result {
			panic(text)
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, before := range []int{4, len(hush) / 2, len(hush) - 4} { // the bytes of the secret before the cut
				if c.from > 0 {
					c.shows(t, c.from-before)
				}
				if c.to < 20_000 || c.to == much {
					c.shows(t, c.to-before)
				}
			}
		})
	}
}

// shows runs the tool with a text that has the secret at a position.
func (c cutter) shows(t *testing.T, at int) {
	t.Helper()
	size := 20_000
	if c.to > size {
		size = c.to + 10_000
	}
	filler := cmp.Or(c.filler, ".")
	text := strings.Repeat(filler, at) + hush + strings.Repeat(filler, size-at-len(hush))
	tool := maskTools([]tools.Tool{c.tool(t, text)}, redact.New([]string{hush}))[0]
	arguments := c.args
	if arguments == "" {
		arguments = "{}"
	}
	ending := tools.Execute(t.Context(), tool, tools.Call{Agent: "a", Arguments: json.RawMessage(arguments)},
		tools.ExecuteOptions{Timeout: time.Minute})
	if !strings.Contains(ending.Result.Text, strings.Repeat(filler, 4)) {
		t.Fatalf("%s: it shows %.300q", ending.Outcome, ending.Result.Text)
	}
	for i := range len(hush) - 3 {
		if strings.Contains(ending.Result.Text, hush[i:i+4]) {
			t.Errorf("with the secret at %d, %q of it remains", at, hush[i:i+4])
			return
		}
	}
}

// printing returns a program that prints the text to a file descriptor.
func printing(to string, code, most int) func(*testing.T, string) tools.Tool {
	return func(t *testing.T, text string) tools.Tool {
		return program.Tool(tools.Spec{Name: "prints"}, program.Program{
			Argv: []string{"/bin/sh", "-c", fmt.Sprintf("printf %%s \"$TEXT\" >&%s; exit %d", to, code)},
			Env:  []string{"TEXT=" + text}, MaxOutput: most,
		})
	}
}

func serving(t *testing.T, text string) tools.Tool {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, text, http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	get := builtin.NewHTTPGet(builtin.HTTPOptions{AllowPrivateHosts: func(string) []string {
		return []string{"127.0.0.1"}
	}})
	return calling{get, fmt.Sprintf(`{"url":%q}`, server.URL)}
}

// A calling is a tool that calls another one with its own arguments.
type calling struct {
	tools.Tool
	arguments string
}

func (c calling) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	call.Arguments = json.RawMessage(c.arguments)
	return c.Tool.Run(ctx, call)
}

func reading(t *testing.T, text string) tools.Tool {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "f"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return builtin.NewFiles(func(string) string { return root }, nil)[0]
}

func returning(result func(text string) tools.Result) func(*testing.T, string) tools.Tool {
	return func(_ *testing.T, text string) tools.Tool {
		return tools.Func(tools.Spec{Name: "returns"}, func(context.Context, struct{}) (tools.Result, error) {
			return result(text), nil
		})
	}
}
