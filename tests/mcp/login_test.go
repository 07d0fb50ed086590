package mcp_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A loginServer is an MCP server that requires tokens, and its authorization server. A refresh token is valid
// once. Its tool returns the access token of the request.
type loginServer struct {
	*httptest.Server

	mu      sync.Mutex
	made    int
	good    map[string]bool // valid access and refresh tokens
	secrets []string
	reused  int // refresh tokens used twice
	renewed int
	revoked int
}

func newLoginServer(t testing.TB) *loginServer {
	g := &loginServer{good: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token",
			"registration_endpoint": g.URL + "/register",
			"revocation_endpoint":   g.URL + "/revoke", "code_challenge_methods_supported": []string{"S256"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]any{"client_id": "turnkeeper", "client_secret": g.secret("client"),
			"token_endpoint_auth_method": "client_secret_basic"})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query()
		back := url.Values{"code": {g.secret("code")}, "state": {asked.Get("state")}}
		http.Redirect(w, r, asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", g.token)
	mux.HandleFunc("/revoke", func(_ http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.revoked++
		delete(g.good, r.PostFormValue("token"))
	})
	mux.HandleFunc("/mcp", g.serve)
	g.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// secret returns a new valid token.
func (g *loginServer) secret(kind string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	text := fmt.Sprintf("canary-%s-%d-4be1", kind, g.made)
	g.good[text] = true
	g.secrets = append(g.secrets, text)
	return text
}

func (g *loginServer) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	given := r.PostForm.Get("code") + r.PostForm.Get("refresh_token")
	_, secret, _ := r.BasicAuth()
	g.mu.Lock()
	good := g.good[given] && g.good[secret]
	delete(g.good, given)
	if r.PostForm.Get("grant_type") == "refresh_token" {
		if g.renewed++; !good {
			g.reused++
		}
	}
	g.mu.Unlock()
	if !good {
		w.WriteHeader(http.StatusBadRequest)
		answerJSON(w, map[string]any{"error": "invalid_grant"})
		return
	}
	answerJSON(w, map[string]any{
		"access_token": g.secret("access"), "refresh_token": g.secret("refresh"), "token_type": "Bearer",
		"expires_in": 3600, "scope": "notes",
	})
}

// serve implements the part of the protocol that a tool call needs.
func (g *loginServer) serve(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	g.mu.Lock()
	good := g.good[token]
	g.mu.Unlock()
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	switch {
	case !good:
		w.Header().Set("WWW-Authenticate", `Bearer scope="notes"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	results := map[string]any{
		"initialize": map[string]any{"protocolVersion": "2025-11-25",
			"serverInfo":   map[string]any{"name": "loginServer", "version": "1"},
			"capabilities": map[string]any{"tools": map[string]any{}}},
		"tools/list": map[string]any{"tools": []any{map[string]any{"name": "whoami",
			"inputSchema": map[string]any{"type": "object"}}}},
		"tools/call": map[string]any{"content": []any{map[string]any{"type": "text",
			"text": "you come with " + token}}},
		"ping": map[string]any{},
	}
	switch result, known := results[m.Method]; {
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case !known:
		answerJSON(w, map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601,
			"message": "no such method"}})
	default:
		answerJSON(w, map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	}
}

// forget invalidates every access token.
func (g *loginServer) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for text := range g.good {
		if strings.Contains(text, "-access-") {
			delete(g.good, text)
		}
	}
}

func (g *loginServer) settings() string {
	return fmt.Sprintf("mcp_servers:\n  tracker:\n    url: %s/mcp\n    oauth: {grant: authorization_code}\n", g.URL)
}

var loginAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+/authorize\?\S+`)

// logIn runs turnctl mcp login and acts as its browser.
func logIn(e *env.Env, server string) *env.Process {
	e.T.Helper()
	p := env.StartProcess(e.T, "login", e.Dir, e.Environ(), env.Binary(e.T, "turnctl"), "mcp", "login", server)
	p.Await("code_challenge")
	p.Await("state=")
	address := loginAddress.FindString(p.Output.String())
	stray, err := http.Get(callbackOf(e.T, address) + "?code=forged&state=forged")
	if err != nil {
		e.T.Fatal(err)
	}
	stray.Body.Close()
	page, err := http.Get(address)
	if err != nil {
		e.T.Fatal(err)
	}
	page.Body.Close()
	if code := p.Wait(); code != 0 || page.StatusCode != http.StatusOK || page.Request.URL.Path != "/callback" {
		e.T.Fatalf("the login ended with %d, its page with %d at %s\n%s", code, page.StatusCode, page.Request.URL.Path,
			p.Output.String())
	}
	return p
}

func callbackOf(t testing.TB, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("redirect_uri")
}

// A user logs in while workers run, two workers renew the login, and it is deleted.
func TestALoginToAnMCPServer(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	g := newLoginServer(t)
	settings := e.ReadFile("turnkeeper.yaml") + "log_level: debug\n" + g.settings()
	e.WriteFile("turnkeeper.yaml", settings)
	e.WriteAgent("clerk", "mcp_servers: {tracker: [whoami]}", "lane: conversation")
	if r := e.Run("", "turnctl", "mcp", "logins"); r.Code == 0 || !strings.Contains(r.Stderr, "turnctl mcp key") {
		t.Errorf("without a key it ended with %d: %s", r.Code, r.Stderr)
	}
	key := strings.TrimSpace(e.Run("", "turnctl", "--config", "/dev/null", "mcp", "key").Stdout)
	e.Vars["LOGIN_KEY"] = key
	e.WriteFile("turnkeeper.yaml", settings+"mcp_login_key: {env: LOGIN_KEY}\n")

	one, two := e.StartWorker(), e.StartWorker()
	e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{ID: "who", Name: "tracker__whoami"}),
		inferencetest.Text("done")))
	said := map[string]string{}
	call := func(want, holds string) {
		t.Helper()
		turn := e.TurnOf(e.Enqueue("clerk", "Who are you?", "--conversation", fmt.Sprint(len(said), want)))
		if got := turn.CallsByWireID()["who"]; got.State != want || !strings.Contains(got.Result, holds) {
			t.Errorf("the call is %s: %s, want %q", got.State, got.Result, holds)
		}
	}
	tell := func(args ...string) string {
		r := e.Run("", "turnctl", args...)
		said[fmt.Sprint(len(said), args)] = r.Stdout + r.Stderr
		return r.Stdout + r.Stderr
	}
	call("failed", `run "turnctl mcp login tracker"`)
	for _, command := range [][]string{{"doctor"}, {"agents", "check"}, {"mcp", "list"}} {
		if text := strings.Join(strings.Fields(tell(command...)), " "); !strings.Contains(text,
			"nobody is logged in") || !strings.Contains(text, "mcp login tracker") {
			t.Errorf("turnctl %v does not tell of the login that is missing:\n%s", command, text)
		}
	}

	login := logIn(e, "tracker")
	if text := login.Output.String(); !strings.Contains(text, "logged in to tracker: 1 tool, scopes: notes") {
		t.Errorf("the login says:\n%s", text)
	}
	said["login"] = login.Output.String()
	e.Await("a worker has found the login", "select exists (select from mcp_tools where server = 'tracker')")
	call("succeeded", "you come with [redacted]")
	if text := tell("mcp", "logins"); !strings.Contains(text, "ok") {
		t.Errorf("the login is lost:\n%s", text)
	}

	// Two workers find at the same time that their token is invalid.
	g.forget()
	var ids []int64
	for i := range 8 {
		ids = append(ids, e.Enqueue("clerk", "Who are you?", "--conversation", fmt.Sprint("at once ", i)))
	}
	for _, id := range ids {
		if got := e.TurnOf(id).CallsByWireID()["who"]; got.State != "succeeded" {
			t.Errorf("the call is %s: %s", got.State, got.Result)
		}
	}
	if g.reused != 0 || g.renewed == 0 {
		t.Errorf("the login was renewed %d times, %d times with a refresh token that was used", g.renewed, g.reused)
	}

	tell("doctor")
	for table, rows := range e.Rows() {
		said["table "+table] = rows
	}
	if text := tell("mcp", "logout", "tracker"); !strings.Contains(text, "logged out") || g.revoked != 2 {
		t.Errorf("%d tokens were revoked:\n%s", g.revoked, text)
	}
	e.Await("the login is forgotten", "select not exists (select from mcp_logins)")
	call("failed", `run "turnctl mcp login tracker"`)
	for _, w := range []*env.Process{one, two} {
		w.Terminate()
		said["the log of "+w.Name] = w.Output.String()
	}
	for place, text := range said {
		for _, secret := range append(g.secrets, key) {
			if strings.Contains(text, secret) {
				t.Errorf("%s contains the secret %s", place, secret)
			}
		}
	}
	if said["table turnkeeper.mcp_logins"] == "" || !strings.Contains(said["table turnkeeper.journal"],
		"you come with [redacted]") {
		t.Error("the search did not cover the login, or the calls")
	}
}

// A user pastes the final address of a browser on another machine. Other logins fail.
func TestLoginsWithoutABrowserHere(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	g := newLoginServer(t)
	e.Vars["LOGIN_KEY"] = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))
	e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+g.settings()+"mcp_login_key: {env: LOGIN_KEY}\n")
	if r := e.Run("", "turnctl", "migrate"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"login", "nothing"}, `the MCP server "nothing" is not configured`},
		{[]string{"login", "tracker", "--within", "1ms"}, "no login within 1ms"},
		{[]string{"login", "tracker", "--paste"}, "standard input has no address"},
		{[]string{"logout", "tracker"}, "nobody is logged in"},
	} {
		if r := e.Run("", "turnctl", append([]string{"mcp"}, c.args...)...); r.Code != 1 ||
			!strings.Contains(r.Stderr, c.want) {
			t.Errorf("turnctl mcp %v ended with %d: %s", c.args, r.Code, r.Stderr)
		}
	}
	paste := func(address func(asked string) string) (code int, said string) {
		cmd := exec.Command(env.Binary(t, "turnctl"), "mcp", "login", "tracker", "--paste")
		cmd.Dir, cmd.Env = e.Dir, e.Environ()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out := env.NewTranscript()
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }()
		if err := out.Await(t.Context(), "state=", ended); err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := fmt.Fprintln(in, address(loginAddress.FindString(out.String()))); err != nil {
			t.Error(err)
		}
		select {
		case <-ended:
		case <-time.After(env.Patience):
			_ = cmd.Process.Kill()
			<-ended
			t.Error("it did not end")
		}
		return cmd.ProcessState.ExitCode(), out.String()
	}
	code, said := paste(func(string) string { return "http://127.0.0.1:9/callback?code=forged&state=forged" })
	if code != 1 || !strings.Contains(said, "this is not the final address of this login") {
		t.Errorf("a forged address ended with %d: %s", code, said)
	}
	code, said = paste(func(asked string) string {
		res, err := http.DefaultTransport.RoundTrip(httptest.NewRequest(http.MethodGet, asked, http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.Header.Get("Location")
	})
	if code != 0 || !strings.Contains(said, "logged in to tracker: 1 tool") {
		t.Errorf("the login ended with %d: %s", code, said)
	}
	if text := e.Run("", "turnctl", "mcp", "list"); strings.Contains(text.Stderr, "login") {
		t.Errorf("with a login it warns: %s", text.Stderr)
	}
}
