package httpapi_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/httpapi"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/presence"
)

// An asked is a request to be recorded.
type asked struct {
	as      string // the token; empty: none
	method  string
	path    string
	body    string // of a form, if the path is one of the page
	headers []string
}

// A recording is an API over a stand-in, and what it has answered.
type recording struct {
	t     *testing.T
	store *standIn
	api   *httpapi.API
	serve http.Handler
	logs  *observer.ObservedLogs
	text  strings.Builder
	seen  map[string]body // the newest long body of each route
}

// A body is what a request was answered.
type body struct{ to, text string }

func newRecording(t *testing.T, changes ...func(*httpapi.Config)) *recording {
	core, logs := observer.New(zap.DebugLevel)
	r := &recording{t: t, store: &standIn{}, logs: logs, seen: map[string]body{}}
	cfg := httpapi.Config{
		Store: r.store, Rate: 1_000_000, MaxMessageBytes: 1000, Log: zap.New(core),
		Mask:    func(s string) string { return strings.ReplaceAll(s, "10.1.2.3", "[redacted]") },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "turns 1") }),
		Refused: func() []presence.Refusal { return nil },
		Observe: func(method, route string, status int, took time.Duration) {
			fmt.Fprintf(&r.text, "  observed: %s %s, %d after %s\n", method, route, status, took)
		},
	}
	for _, change := range changes {
		change(&cfg)
	}
	r.api = httpapi.New(cfg)
	r.serve = r.api.Handler()
	return r
}

// A timedWriter records an answer, its deadlines and flushes.
type timedWriter struct {
	*httptest.ResponseRecorder
	began time.Time
	notes []string
	lines []line // with what is written
}

// A line is a note or a piece of an answer.
type line struct {
	at   time.Duration
	text string
}

func (w *timedWriter) note(what string, at time.Time) error {
	if !at.IsZero() {
		what += " " + time.Until(at).String()
	}
	w.notes = append(w.notes, what)
	if what != "write within 30s" { // that of each piece of a stream
		w.lines = append(w.lines, line{time.Since(w.began), "(" + what + ")"})
	}
	return nil
}

func (w *timedWriter) SetReadDeadline(at time.Time) error  { return w.note("read within", at) }
func (w *timedWriter) SetWriteDeadline(at time.Time) error { return w.note("write within", at) }

func (w *timedWriter) Write(b []byte) (int, error) {
	if n := len(w.notes); n == 0 || w.notes[n-1] != "write within 30s" {
		w.lines = append(w.lines, line{time.Since(w.began), "(not within 30s)"})
	}
	w.lines = append(w.lines, line{time.Since(w.began), string(b)})
	return w.ResponseRecorder.Write(b)
}

// do sends a request and returns the answer.
func (r *recording) do(ctx context.Context, a asked) *timedWriter {
	req := httptest.NewRequestWithContext(context.WithValue(ctx, requestKey{}, true), a.method, a.path,
		strings.NewReader(a.body))
	req.Host = "localhost"
	page := !strings.HasPrefix(a.path, "/v1/")
	switch {
	case page && a.as != "":
		req.AddCookie(&http.Cookie{Name: "turnkeeper_session", Value: "ts_" + a.as})
	case a.as != "":
		req.Header.Set("Authorization", "Bearer "+a.as)
	}
	switch {
	case page && a.method == "POST":
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", "http://localhost")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	case a.body != "":
		req.Header.Set("Content-Type", "application/json")
	}
	if page {
		req.Header.Set("Accept", "text/html")
	}
	for i := 0; i+1 < len(a.headers); i += 2 {
		req.Header.Set(a.headers[i], a.headers[i+1])
	}
	w := &timedWriter{ResponseRecorder: httptest.NewRecorder(), began: time.Now()}
	func() {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // it is a value of panic
				panic(p)
			} else if p != nil {
				_ = w.note("the connection is cut", time.Time{})
			}
		}()
		r.serve.ServeHTTP(w, req)
	}()
	return w
}

// doAlone is like do, and fails the test if the context of a call of the store outlasts the request: what such a
// context holds, a timer for example, is held as long.
func (r *recording) doAlone(ctx context.Context, a asked) *timedWriter {
	w := r.do(ctx, a)
	synctest.Wait()
	if n := r.store.lasting(); n > 0 {
		r.t.Errorf("%s %s: the contexts of %d calls of the store outlast the request", a.method, a.path, n)
	}
	return w
}

// record sends a request, and writes down how the store was called and all of the answer.
func (r *recording) record(a asked) {
	fmt.Fprintf(&r.text, "=== %s %s%s\n", a.method, a.path,
		strings.TrimRight(" as "+cmp.Or(a.as, "nobody")+" "+strings.Join(a.headers, " "), " "))
	if a.body != "" {
		fmt.Fprintf(&r.text, "  %.300s\n", shortened(a.body))
	}
	w := r.doAlone(r.t.Context(), a)
	for _, call := range r.store.take() {
		fmt.Fprintf(&r.text, "  store: %s\n", byChance.ReplaceAllString(shortened(call), "BY-CHANCE"))
	}
	for _, entry := range r.logs.TakeAll() {
		fmt.Fprintf(&r.text, "  log: %s %v\n", entry.Message, entry.ContextMap())
	}
	fmt.Fprintf(&r.text, "  %s\n%d\n", strings.Join(w.notes, ", "), w.Code)
	text := bodyOf(w)
	route, _, _ := strings.Cut(numbers.ReplaceAllString(a.path, "N"), "?")
	known := r.seen[route]
	if len(text) > 500 {
		r.seen[route] = body{a.method + " " + a.path + " as " + cmp.Or(a.as, "nobody"), text}
	}
	if but := changed(known.text, text); len(text) > 500 && len(but) < len(text)/2 {
		text = "like " + known.to + but + "\n"
	}
	r.text.WriteString(headersOf(w.Header()) + text + "\n")
}

var numbers = regexp.MustCompile(`[0-9]+`)

// changed returns the lines that only one of two texts has.
func changed(before, now string) (but string) {
	old, young := strings.Split(before, "\n"), strings.Split(now, "\n")
	for _, line := range old {
		if !slices.Contains(young, line) {
			but += "\n- " + line
		}
	}
	for _, line := range young {
		if !slices.Contains(old, line) {
			but += "\n+ " + line
		}
	}
	return but
}

// common are headers of almost all answers of the API, and of the page. An answer is recorded without them, or with
// what it has instead.
var common = []map[string]string{
	{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	},
	{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; " +
			"base-uri 'none'; frame-ancestors 'none'",
	},
}

func headersOf(header http.Header) string {
	var b strings.Builder
	usual := common[0]
	if header.Get("X-Frame-Options") != "" {
		usual = common[1]
	}
	for _, name := range slices.Sorted(maps.Keys(usual)) {
		if header.Get(name) == "" {
			fmt.Fprintf(&b, "without %s\n", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if text := strings.Join(header[name], " | "); text != usual[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, text)
		}
	}
	return b.String()
}

// byChance finds what is another text each time.
var byChance = regexp.MustCompile(`conv_[a-z2-7]{26}|name="number" value="[A-Z2-7]{26}"`)

// repeats are the characters of long texts.
var repeats = regexp.MustCompile(`x{50,}|é{50,}|w{50,}`)

// shortened returns a text with the number of times that a character is repeated.
func shortened(text string) string {
	return repeats.ReplaceAllStringFunc(text, func(all string) string { return fmt.Sprintf("%.2s*%d", all, len(all)) })
}

// bodyOf returns the body: of a page without the frame that all pages have, and of JSON in lines.
func bodyOf(w *timedWriter) string {
	body := shortened(byChance.ReplaceAllString(w.Body.String(), "BY-CHANCE"))
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		return strings.NewReplacer(`},{`, "},\n{", `},"`, "},\n\"", `],"`, "],\n\"").Replace(body)
	}
	_, inside, _ := strings.Cut(body, "<title>")
	title, inside, _ := strings.Cut(inside, "</title>")
	_, inside, found := strings.Cut(inside, "<main")
	if !found {
		return body
	}
	inside, _, _ = strings.Cut(inside, "</main>")
	lines := []string{title}
	for line := range strings.Lines(inside) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// recorded compares the answers to requests with a file.
func recorded(t *testing.T, file string, requests []asked, changes ...func(*httpapi.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRecording(t, changes...)
		for _, a := range requests {
			r.record(a)
		}
		golden.File(t, "testdata/"+file, r.text.String())
	})
}

func form(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

// idsOf returns the ids that a path is recorded with: those of the stand-in's rows of each state.
func idsOf(path string) []string {
	upTo := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprint(i+1))
		}
		return append(ids, "100", "x")
	}
	switch {
	case !strings.Contains(path, "{id}"):
		return []string{""}
	case strings.Contains(path, "/turns/"):
		return upTo(7)
	case strings.Contains(path, "/outputs/"):
		return []string{"text", "bytes", "gone", "none"}
	case strings.Contains(path, "/responses/"):
		return []string{"resp_1", "resp_2", "resp_3", "resp_4", "resp_5", "resp_6", "resp_9", "resp_100",
			"resp_01", "3"}
	case strings.Contains(path, "/conversations/"):
		return []string{"conv_1", "none"}
	case strings.Contains(path, "/models/"):
		return []string{"clerk", "turnkeeper/desk", "writer", "ghost"}
	default:
		return upTo(12)
	}
}

// readings are requests of each path that is read, for each id.
func readings(paths []string) (all []asked) {
	for _, path := range paths {
		for _, id := range idsOf(path) {
			at := strings.ReplaceAll(path, "{id}", id)
			at = strings.NewReplacer("{name}", "clerk", "{agent}", "clerk", "{$}", "").Replace(at)
			all = append(all, asked{method: "GET", path: at})
		}
	}
	return all
}
