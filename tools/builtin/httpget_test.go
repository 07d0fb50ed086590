package builtin_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/netguard"
	"turnkeeper/internal/testrun"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

func getter(opts builtin.HTTPOptions) []tools.Tool { return []tools.Tool{builtin.NewHTTPGet(opts)} }

// allow lets the agent "helper" reach the hosts.
func allow(hosts ...string) builtin.HTTPOptions {
	return builtin.HTTPOptions{AllowPrivateHosts: func(agent string) []string {
		if agent == "helper" {
			return hosts
		}
		return nil
	}}
}

func get(t *testing.T, opts builtin.HTTPOptions, url string) tools.RunResult {
	t.Helper()
	args, err := json.Marshal(map[string]string{"url": url})
	if err != nil {
		t.Fatal(err)
	}
	return use(t, getter(opts), "http_get", string(args))
}

// counting starts a server that counts its requests.
func counting(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server, &hits
}

func port(server *httptest.Server) string {
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	return port
}

func TestHTTPGetResponses(t *testing.T) {
	body := func(kind, text string, code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text))
		}
	}
	ok := func(r tools.Result) tools.RunResult { return tools.RunResult{Result: r, Outcome: tools.Succeeded} }
	failed := func(text string) tools.RunResult {
		return tools.RunResult{Result: tools.Result{Text: text, IsError: true}, Outcome: tools.Failed}
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    tools.RunResult
	}{
		{"text", body("text/html; charset=utf-8", "<p>hi", 200),
			ok(tools.Result{Text: "<p>hi", MediaType: "text/html; charset=utf-8"})},
		{"JSON", body("application/ld+json", "{}", 203),
			ok(tools.Result{Text: "{}", MediaType: "application/ld+json"})},
		{"binary", body("image/png", "\x89PNG", 200),
			ok(tools.Result{Bytes: []byte("\x89PNG"), MediaType: "image/png"})},
		{"Latin-1", body("text/html; charset=ISO-8859-1", "caf\xe9 \x80", 200),
			ok(tools.Result{Text: "café €", MediaType: "text/html; charset=utf-8"})},
		{"Shift JIS", body("text/plain; charset=Shift_JIS", "\x93\xfa\x96\x7b", 200),
			ok(tools.Result{Text: "日本", MediaType: "text/plain; charset=utf-8"})},
		{"UTF-16 with a mark", body("text/plain; charset=utf-16", "\xfe\xff\x00h\x00i", 200),
			ok(tools.Result{Text: "hi", MediaType: "text/plain; charset=utf-8"})},
		{"charset that is not known", body("text/plain; charset=martian", "caf\xe9", 200),
			ok(tools.Result{Text: "caf\xe9", MediaType: "text/plain; charset=martian"})},
		{"charset of a picture", body("image/png; charset=iso-8859-1", "\x89PNG", 200),
			ok(tools.Result{Bytes: []byte("\x89PNG"), MediaType: "image/png; charset=iso-8859-1"})},
		{"error in Latin-1", body("text/plain; charset=iso-8859-1", "d\xe9sol\xe9", 404),
			failed("HTTP 404 Not Found\n\ndésolé")},
		{"malformed type", body("text/plain; =", "x", 200), ok(tools.Result{Text: "x", MediaType: "text/plain; ="})},
		{"no content", body("text/plain", "", 204),
			ok(tools.Result{Text: "HTTP 204 No Content: the response is empty."})},
		{"not found", body("text/plain", "no such page", 404), failed("HTTP 404 Not Found\n\nno such page")},
		{"error with a long body", body("text/plain", strings.Repeat("é", 2000), 500),
			failed("HTTP 500 Internal Server Error\n\n" + strings.Repeat("é", 1000))},
		{"error with a binary body", body("image/png", "\x89PNG", 503), failed("HTTP 503 Service Unavailable")},
		{"unknown code", body("text/plain", "x", 799), failed("HTTP 799\n\nx")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, _ := counting(t, tt.handler)
			if diff := cmp.Diff(tt.want, get(t, allow("127.0.0.1"), server.URL)); diff != "" {
				t.Errorf("ending (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHTTPGetBoundsTheBody(t *testing.T) {
	server, _ := counting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		chunk := []byte(strings.Repeat("x", 1<<16))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	if got := get(t, allow("127.0.0.1"), server.URL); len(got.Result.Text) != builtin.MaxResponseBytes ||
		!got.Result.Incomplete {
		t.Errorf("%d bytes, incomplete %v, outcome %s", len(got.Result.Text), got.Result.Incomplete, got.Outcome)
	}
}

func TestHTTPGetStopsInTime(t *testing.T) {
	server, _ := counting(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("a"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	r, err := tools.NewRegistry(getter(allow("127.0.0.1"))...)
	if err != nil {
		t.Fatal(err)
	}
	tool, _ := r.Get("http_get")
	call := tools.Call{Agent: "helper", Arguments: []byte(`{"url":"` + server.URL + `"}`)}
	got := tools.Execute(t.Context(), tool, call, tools.ExecuteOptions{Timeout: 100 * time.Millisecond,
		Grace: time.Minute})
	if got.Result.Text != "tool error: 'http_get' timed out after 0.1 s" || got.Abandoned {
		t.Errorf("ending = %+v", got)
	}
}

func TestHTTPGetRefusesURLs(t *testing.T) {
	for url, want := range map[string]string{
		"file:///etc/passwd":                    `must begin with http:// or https://, not with "file:"`,
		"example.com":                           "must begin with http",
		"gopher://x":                            "must begin with http",
		"http://":                               "names no host",
		"http://:80/":                           "names no host",
		"http://u:pw@example.com":               "holds a user name or password",
		"http://u@example.com":                  "holds a user name or password",
		"http://[::1":                           "that is not a URL",
		"http://a/\x7f":                         "that is not a URL",
		"http://x/" + strings.Repeat("a", 9000): "at most 8192 are allowed",
	} {
		got := get(t, builtin.HTTPOptions{}, url)
		wantFailure(t, got, want)
		if strings.Contains(got.Result.Text, "pw") {
			t.Errorf("the password is shown: %s", got.Result.Text)
		}
	}
}

func TestHTTPGetPrivateAddresses(t *testing.T) {
	server, hits := counting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("in")) })
	p := port(server)
	for _, tt := range []struct {
		name, url string
		allowed   []string
		reached   bool
	}{
		{"not allowed", "http://127.0.0.1:" + p, nil, false},
		{"by name", "http://localhost:" + p, nil, false},
		{"mapped into IPv6", "http://[::ffff:127.0.0.1]:" + p, nil, false},
		{"mapped, in hex", "http://[::ffff:7f00:1]:" + p, nil, false},
		{"unspecified", "http://0.0.0.0:" + p, nil, false},
		{"host allowed", "http://127.0.0.1:" + p, []string{"127.0.0.1"}, true},
		{"host and port allowed", "http://127.0.0.1:" + p, []string{"127.0.0.1:" + p}, true},
		{"name allowed, in capitals", "http://LOCALHOST:" + p, []string{"localhost"}, true},
		{"another port allowed", "http://127.0.0.1:" + p, []string{"127.0.0.1:1"}, false},
		{"another host allowed", "http://127.0.0.1:" + p, []string{"localhost", "127.0.0.10", "0.0.1", ""}, false},
		{"allowed by the name, asked by the address", "http://127.0.0.1:" + p, []string{"localhost:" + p}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hits.Store(0)
			got := get(t, allow(tt.allowed...), tt.url)
			if reached := hits.Load() > 0; reached != tt.reached {
				t.Fatalf("reached = %v, ending %+v", reached, got)
			}
			if !tt.reached {
				wantFailure(t, got, "the address is refused")
			}
		})
	}
}

// TestMain sets the proxies first, because net/http reads them once per process.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	testrun.Main(m) // fails if a test leaves a goroutine behind
}

func TestHTTPGetIgnoresProxies(t *testing.T) {
	server, _ := counting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("direct")) })
	opts := allow("inside.test")
	opts.Resolver = resolver(t, [4]byte{127, 0, 0, 1})
	if got := get(t, opts, "http://inside.test:"+port(server)); got.Result.Text != "direct" {
		t.Errorf("ending = %+v", got)
	}
}

func TestHTTPGetRedirects(t *testing.T) {
	secret, secretHits := counting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })
	var target string
	server, hits := counting(t, func(w http.ResponseWriter, r *http.Request) {
		var left int
		if _, err := fmt.Sscanf(r.URL.Path, "/hop/%d", &left); err == nil && left > 0 {
			http.Redirect(w, r, fmt.Sprintf("/hop/%d", left-1), http.StatusFound)
			return
		}
		if r.URL.Path == "/away" {
			w.Header().Set("Location", target)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		_, _ = w.Write([]byte("arrived"))
	})
	opts := allow("127.0.0.1:" + port(server))
	if got := get(t, opts, server.URL+"/hop/5"); got.Result.Text != "arrived" {
		t.Errorf("five redirects: %+v", got)
	}
	hits.Store(0)
	wantFailure(t, get(t, opts, server.URL+"/hop/6"), "stopped after 5 redirects")
	if hits.Load() != 6 {
		t.Errorf("%d requests were made, want 6", hits.Load())
	}
	for to, want := range map[string]string{
		secret.URL:                             "the address is refused",
		"http://169.254.169.254/latest":        "the address is refused",
		"file:///etc/passwd":                   "redirect refused",
		"http://u:p@127.0.0.1:" + port(server): "redirect refused",
	} {
		target = to
		wantFailure(t, get(t, opts, server.URL+"/away"), want)
	}
	if secretHits.Load() != 0 {
		t.Error("the redirect reached a private address")
	}
}

// TestHTTPGetOwnListeners tests that a tool cannot reach its own process, by address, by
// name or by redirect.
func TestHTTPGetOwnListeners(t *testing.T) {
	own, ownHits := counting(t, func(http.ResponseWriter, *http.Request) {})
	var via string
	server, _ := counting(t, func(w http.ResponseWriter, r *http.Request) {
		via = r.Header.Get("Via")
		http.Redirect(w, r, own.URL, http.StatusFound)
	})
	opts := allow("127.0.0.1", "localhost", "0.0.0.0", "inside.test", "::ffff:127.0.0.1")
	opts.Own = &netguard.Listeners{}
	opts.Own.Add(own.Listener.Addr().String())
	for _, url := range []string{own.URL, "http://localhost:" + port(own), "http://0.0.0.0:" + port(own),
		"http://[::ffff:127.0.0.1]:" + port(own), server.URL} {
		wantFailure(t, get(t, opts, url), "the address is refused: the host is at a worker's own address")
	}
	opts.Resolver = resolver(t, [4]byte{127, 0, 0, 1})
	wantFailure(t, get(t, opts, "http://inside.test:"+port(own)), "the address is refused")
	if ownHits.Load() != 0 {
		t.Errorf("it was reached %d times", ownHits.Load())
	}
	if via != "1.1 turnkeeper" { // tells other workers on this machine that the client is a tool
		t.Errorf("Via is %q", via)
	}
}

// TestHTTPGetRebinding looks up a name that resolves to an allowed address first and to
// a refused one later: the address of each connection is checked.
func TestHTTPGetRebinding(t *testing.T) {
	good, goodHits := counting(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/again", http.StatusFound)
	})
	listener, err := net.Listen("tcp", "127.0.0.2:"+port(good))
	if err != nil {
		t.Fatal(err)
	}
	var badHits atomic.Int64
	bad := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		badHits.Add(1)
	})}}
	bad.Start()
	t.Cleanup(bad.Close)

	opts := builtin.HTTPOptions{Resolver: resolver(t, [4]byte{127, 0, 0, 1}, [4]byte{127, 0, 0, 2})}
	opts = builtin.RefuseBy(opts, func(address string) string {
		if strings.HasPrefix(address, "127.0.0.1:") {
			return "" // treated as a public address
		}
		return "loopback"
	})
	wantFailure(t, get(t, opts, "http://rebind.test:"+port(good)+"/"),
		"the address is refused: the host is at a loopback address")
	if goodHits.Load() != 1 || badHits.Load() != 0 {
		t.Errorf("requests: %d good, %d bad; want 1, 0", goodHits.Load(), badHits.Load())
	}
}

func TestHTTPGetTellsNothingOfTheNetwork(t *testing.T) {
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := unused.Addr().String()
	_ = unused.Close()
	got := get(t, allow("127.0.0.1"), "http://"+address+"/")
	wantFailure(t, got, "connection refused")
	if strings.Contains(got.Result.Text, "127.0.0.1") {
		t.Errorf("shown: %s", got.Result.Text)
	}
	failing := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no server at 192.168.7.7")
	}}
	got = get(t, builtin.HTTPOptions{Resolver: failing}, "http://nowhere.test/")
	wantFailure(t, got, `the host "nowhere.test" could not be looked up`)
}

// resolver returns a resolver with its own name server. It answers each query for an
// IPv4 address with the next answer, and repeats the last one.
func resolver(t *testing.T, answers ...[4]byte) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		question := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(question)
			if err != nil {
				return
			}
			reply, isIPv4 := nameReply(question[:n], answers[0])
			if isIPv4 && len(answers) > 1 {
				answers = answers[1:]
			}
			_, _ = server.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// nameReply returns the reply to a DNS query: the address for type A, no records for
// others.
func nameReply(question []byte, address [4]byte) (reply []byte, isIPv4 bool) {
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5 // the final zero, type and class
	isIPv4 = binary.BigEndian.Uint16(question[end-4:]) == 1
	reply = append(reply, question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	reply = append(reply, question[12:end]...)
	if isIPv4 {
		reply[7] = 1
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		reply = append(reply, address[:]...)
	}
	return reply, isIPv4
}

// TestHTTPGetChecksTheDestinationsOfRedirects checks that a redirect to a destination that the call may not send to is
// refused before it is requested, and that no request has a Referer or an Authorization.
func TestHTTPGetChecksTheDestinationsOfRedirects(t *testing.T) {
	headers := make(chan http.Header, 10)
	shut, hits := counting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("shut")) })
	open, _ := counting(t, func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header.Clone()
		switch r.URL.Path {
		case "/to":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		default:
			_, _ = w.Write([]byte("open"))
		}
	})
	tool := builtin.NewHTTPGet(allow("127.0.0.1"))
	flow := policy.Flow{Destinations: []string{open.URL + "/to", open.URL + "/open/**"}}
	for to, want := range map[string]string{
		open.URL + "/open/a?secret=1": "open",
		shut.URL + "/open/a":          "redirect refused: the call may not send its content to " + shut.URL + "/open/a",
		open.URL + "/open/../shut":    "redirect refused",
		open.URL + "/open/%2e%2e/x":   "redirect refused",
		"/shut":                       "redirect refused",
	} {
		args, _ := json.Marshal(map[string]string{"url": open.URL + "/to?to=" + url.QueryEscape(to)})
		got := tools.Execute(t.Context(), tool, tools.Call{Agent: "helper", Arguments: args,
			CheckDestination: func(to string) error {
				if flow.AllowsDestination(to) {
					return nil
				}
				return fmt.Errorf("the call may not send its content to %s", to)
			}}, tools.ExecuteOptions{Timeout: time.Minute})
		if (got.Outcome == tools.Succeeded) != (want == "open") || !strings.Contains(got.Result.Text, want) {
			t.Errorf("%s: %+v, want %q", to, got, want)
		}
	}
	if hits.Load() != 0 {
		t.Error("a refused redirect was requested")
	}
	close(headers)
	for h := range headers {
		if h.Get("Referer")+h.Get("Authorization") != "" {
			t.Errorf("headers: %v", h)
		}
	}
}
