package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/membudget"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// TestLimits tries each limit of what servers send.
func TestLimits(t *testing.T) {
	text := func(size int) string { return strings.Repeat("x", size) }
	fits := func(d mcpdef.Definition) bool { return Fault(d) == "" }
	rows := map[string]limittest.Row{
		"maxDescription": {At: 16384, Takes: func(_ *testing.T, n int) bool {
			return fits(mcpdef.Definition{Description: text(n), Schema: emptySchema})
		}},
		"maxSchema": {At: 65536, Takes: func(_ *testing.T, n int) bool {
			return fits(mcpdef.Definition{Schema: `{"type":"object","title":"` + text(n-28) + `"}`})
		}},
		"maxTools": {At: 2000, Slow: true, Takes: func(t *testing.T, n int) bool { return lists(t, 1000, n, "") }},
		"maxPages": {At: 100, Takes: func(t *testing.T, n int) bool { return lists(t, 1, n, "") }},
		"maxListing": {At: 16 << 20, Slow: true, Takes: func(t *testing.T, n int) bool {
			schema := len(definitionOf(&sdk.Tool{InputSchema: json.RawMessage(`{"type":"object"}`)}).Schema)
			return lists(t, 1, 2, text(n/2-schema), text(n-n/2-schema))
		}},
		"maxScope": {At: 256, Takes: func(_ *testing.T, n int) bool {
			return len(cleanScopes([]string{text(n)})) == 1
		}},
		"maxScopes": {At: 64, Takes: func(_ *testing.T, n int) bool {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprint("s", i), fmt.Sprint("s", i))
			}
			return len(cleanScopes(all)) == n
		}},
		"maxLanes": {At: 64, Takes: func(_ *testing.T, n int) bool { _, err := lanes(n); return err == nil }},
		"maxVisits": {At: 3, Takes: func(t *testing.T, n int) bool {
			v := &visitor{person: Person{Visit: func(context.Context, string) (*url.URL, error) {
				return nil, errors.New("not back")
			}}}
			var err error
			for range n {
				_, err = v.visit(t.Context(), &auth.AuthorizationArgs{URL: "https://login.example"})
			}
			return err.Error() == "not back"
		}},
		"maxRedirects": {At: 5, Takes: func(_ *testing.T, n int) bool {
			one := &http.Request{URL: &url.URL{Scheme: "http", Host: "h"}}
			via := make([]*http.Request, n)
			for i := range via {
				via[i] = one
			}
			return sameOrigin(one, via) == nil
		}},
		"maxInputSchema": {At: 65536, Takes: func(_ *testing.T, n int) bool {
			return asksFor("", map[string]any{"type": "object", "title": text(n - 28)}) == nil
		}},
		"maxInputState": {At: 256 << 10, Takes: func(_ *testing.T, n int) bool {
			return asksFor(text(n-len(`{"state":"","forms":["q"]}`)), map[string]any{"type": "object"}) == nil
		}},
		"maxQuestion": {At: 2000, Takes: func(t *testing.T, n int) bool {
			f, fault := Server{}.formOf(&sdk.ElicitParams{Message: text(n-1) + "!"})
			if fault != "" {
				t.Error(fault)
			}
			return strings.HasSuffix(f.message, "!")
		}},
		"maxNote": {At: 300, Takes: func(_ *testing.T, n int) bool {
			return strings.HasSuffix(Server{}.progressText(&sdk.ProgressNotificationParams{Message: text(n-1) + "!"}),
				"!")
		}},
	}
	for test, names := range map[string][]string{
		"TestATokenThatIsRefusedEndsTheCall": {"maxRenewals"},
		"TestWhenALinkConnects":              {"answerTime"},
		"TestHowLongAServerRests":            {"loginPause"},
		"TestALoginIsReadAgain":              {"freshTime", "lookTime", "authTime"},
		"TestAGiantAnswer":                   {"maxFrame"},
		"TestBulkyAnswers":                   {"maxDecoded", "MaxResultMemory"},
		"TestWhoseAnswerIsTooLarge":          {"maxToken", "codeTooLarge"},
		"TestSamplingTokensAreBounded":       {"maxAnswerTokens"},
		"TestWhatAServerAsksFor":             {"codeDeclined"},
		"TestAServerThatAsksAgainAndAgain":   {"maxInputRounds"},
		"TestLoginsThatFail":                 {"KeyBytes"},
	} {
		for _, name := range names {
			rows[name] = limittest.Row{Test: test}
		}
	}
	for why, names := range map[string][]string{
		"the text of an error or of a log line": {"maxSaid", "maxTail", "maxLogLine", "maxRefusal", "codeRejected"},
		"more only costs memory or time":        {"maxDrained", "maxIdleConns", "maxAuthBody", "loggedNotes"},
		"a timeout of what the server does in time": {"EndTime", "assertionTime", "claimTime", "storeTime", "tokenTime",
			"defaultConnectTimeout"},
	} {
		for _, name := range names {
			rows[name] = limittest.Row{None: why}
		}
	}
	limittest.Check(t, rows)
}

// TestShippedLimits compares each limit that clients have with what docs/mcp.md promises. Most tests set others.
func TestShippedLimits(t *testing.T) {
	text, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Join(strings.Fields(string(text)), " ")
	rows := map[string]struct {
		is   any
		says string // in the documentation; empty: nothing
	}{
		"Frame":      {16 << 20, "An answer of more than 16 MiB fails its call"},
		"Drop":       {int64(256 << 20), "The rest of the answer is read, up to 256 MiB"},
		"Memory":     {(*membudget.Budget)(nil), ""}, // Config.Memory
		"Newest":     {time.Duration(0), "the worker tries 2025-11-25 after half of `connect_timeout`"},
		"Ping":       {5 * time.Second, "the next call first lists the server's tools, for at most 5 seconds"},
		"End":        {2 * time.Second, "it closes the program's input, and kills the program after two seconds"},
		"Reason":     {5 * time.Second, ""},
		"Resume":     {3, ""},
		"Progress":   {time.Second, ""},
		"Relist":     {time.Second, "they are read again, at most once a second"},
		"LastRelist": {5 * time.Minute, "the pause doubles, up to 5 minutes"},
		"Reread":     {time.Second, ""},
		"FirstPause": {time.Second, "pauses of a second to a minute after further losses in a row"},
		"LastPause":  {time.Minute, "pauses of a second to a minute after further losses in a row"},
	}
	shipped := reflect.ValueOf(defaultLimits())
	for _, field := range reflect.VisibleFields(shipped.Type()) {
		row, has := rows[field.Name]
		if got := shipped.FieldByIndex(field.Index).Interface(); !has || got != row.is {
			t.Errorf("%s is %v, want %v; it has a row: %t", field.Name, got, row.is, has)
		}
		if !strings.Contains(docs, row.says) {
			t.Errorf("docs/mcp.md does not say %q", row.says)
		}
	}
	if shipped.NumField() != len(rows) {
		t.Errorf("%d rows for %d limits", len(rows), shipped.NumField())
	}
}

// lists reports whether n tools, with descriptions for the first of them, are taken from a server with pages of a size.
func lists(t *testing.T, page, n int, descriptions ...string) bool {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "s"}, &sdk.ServerOptions{PageSize: page})
	for i := range n {
		tool := &sdk.Tool{Name: fmt.Sprintf("t%05d", i), InputSchema: json.RawMessage(`{"type":"object"}`)}
		if i < len(descriptions) {
			tool.Description = descriptions[i]
		}
		server.AddTool(tool, nil)
	}
	near, far := sdk.NewInMemoryTransports()
	if _, err := server.Connect(t.Context(), far, nil); err != nil {
		t.Fatal(err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "c"}, nil).Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	all, err := listTools(t.Context(), session, Server{Name: "s"}, nil)
	if err != nil {
		t.Log(err)
	}
	return err == nil && len(all) == n
}

// lanes gives out the links of n lanes that are all in use.
func lanes(n int) (h *host, err error) {
	h = &host{server: Server{SessionPerLane: true}, links: map[turnkeeper.Lane]*link{}}
	for i := range n {
		var l *link
		if l, err = h.link(turnkeeper.Lane(fmt.Sprint("lane", i))); err == nil {
			l.connecting = make(chan struct{})
		}
	}
	return h, err
}

// TestTheIdlestLaneGivesWay checks which session ends for that of another lane.
func TestTheIdlestLaneGivesWay(t *testing.T) {
	h, err := lanes(64)
	if err != nil {
		t.Fatal(err)
	}
	for lane, unused := range map[turnkeeper.Lane]time.Duration{"lane7": time.Minute, "lane8": time.Hour,
		"lane9": time.Second} {
		h.links[lane].connecting, h.links[lane].used = nil, time.Now().Add(-unused)
	}
	for _, want := range []turnkeeper.Lane{"lane8", "lane7", "lane9"} {
		l, err := h.link("for " + want)
		if err != nil || h.links[want] != nil || len(h.links) != 64 {
			t.Fatalf("%s was to end: %v", want, err)
		}
		l.connecting = make(chan struct{})
	}
	if _, err := h.link("one more"); !errors.Is(err, errTooManyLanes) {
		t.Errorf("with all in use: %v", err)
	}
	h.listing.Wait()
}

// asksFor returns the error of a request for input other than the request itself.
func asksFor(state string, schema map[string]any) error {
	s := &session{server: Server{Name: "s"}}
	err := s.inputRequest(state, nil, map[string]form{"q": {"Which?", schema}}, nil)
	if _, asked := errors.AsType[*tools.InputRequest](err); asked {
		return nil
	}
	return err
}
