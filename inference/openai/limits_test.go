package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/limittest"
)

// TestBulkyAnswersAreRefused checks that answers of a provider with millions of values are refused
// before they are decoded.
func TestBulkyAnswersAreRefused(t *testing.T) {
	many := func(item string) string { return "[" + strings.Repeat(item+",", 15_000_000/(len(item)+1)) + item + "]" }
	calls := "data: " + `{"choices":[{"delta":{"tool_calls":[` +
		strings.Repeat(`{"function":{"name":"f","arguments":"{}"}},`, 1000)
	calls = strings.TrimSuffix(calls, ",") + "]}}]}\n\n"
	for name, c := range map[string]struct{ contentType, answer, says string }{
		"whole": {"application/json", `{"choices":` + many(`{}`) + `}`,
			"the answer is not taken: it has more than 50000 JSON values"},
		"event": {"text/event-stream", `data: {"choices":[{"delta":{"x":` + many(`[]`) + "}}]}\n\n",
			"the answer is not taken: it has more than 50000 JSON values"},
		"deep": {"application/json", `{"choices":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
			"the answer is not taken: it has more than 128 levels of nested JSON objects and arrays"},
		"calls": {"text/event-stream", strings.Repeat(calls, 3),
			"the answer is not taken: it has more than 2000 tool calls"},
		"errors": {"application/json", `{"error":{"message":"no","details":` + many(`{}`) + `}}`,
			"the answer is not taken: it has more than 50000 JSON values"},
	} {
		client := wired(t, &wire{contentType: c.contentType, answer: []byte(c.answer)}, openai.Profile{})
		var err error
		allocated := allocates(func() {
			_, err = client.Generate(t.Context(), inference.Request{Model: "m",
				Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}, nil)
		})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if allocated > 150<<20 {
			t.Errorf("%s: %d MiB were allocated", name, allocated>>20)
		}
	}
}

// TestABulkyListOfModels checks that such a list counts as none.
func TestABulkyListOfModels(t *testing.T) {
	entries, err := json.Marshal(make([]struct{}, 3_000_000))
	if err != nil {
		t.Fatal(err)
	}
	client := wired(t, &wire{contentType: "application/json", answer: []byte(`{"data":` + string(entries) + `}`)},
		openai.Profile{})
	if allocated := allocates(func() {
		if all, known, err := client.Models(t.Context()); err != nil || known || len(all) > 0 {
			t.Errorf("%d models, %t, %v", len(all), known, err)
		}
	}); allocated > 150<<20 {
		t.Errorf("%d MiB were allocated", allocated>>20)
	}
}

// allocates returns how many bytes f allocates in total.
func allocates(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A refusing answers every request with a status and a body.
type refusing struct {
	status int
	header http.Header
	body   string
}

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: r.status, Header: r.header, Body: io.NopCloser(strings.NewReader(r.body)), Request: req,
		ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// failure returns the error of a client with secrets whose provider refuses a request.
func failure(t *testing.T, r refusing) *inference.Error {
	t.Helper()
	client := newClient(t, openai.Config{Name: "p", BaseURL: "http://localhost/v1", APIKey: planted,
		HTTPClient: &http.Client{Transport: r}})
	_, err := client.Generate(t.Context(), question, nil)
	e, ok := errors.AsType[*inference.Error](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	return e
}

var question = inference.Request{Model: "m", Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}

// planted is a key that looks like no other service's.
const planted = "Wörter-und-Geheimnisse/4711"

// TestASecretAtACut checks that no part of a key is shown, wherever a limit cuts an error's body.
func TestASecretAtACut(t *testing.T) {
	for name, form := range map[string]string{"plain": "%s", "an HTML page": "<html><title>%s</title>",
		"a page without a title": "<p>%s</p>"} {
		for _, limit := range []int{64 << 10, 256 << 10} {
			for _, cut := range []int{4, len(planted) - 1} {
				before := limit - strings.Index(form, "%") - cut - len("gone")
				body := fmt.Sprintf(form, "gone"+strings.Repeat(" ", before)+planted)
				got := failure(t, refusing{status: http.StatusBadRequest, body: body})
				if shown := fmt.Sprint(got.Detail, got); !strings.Contains(shown, "gone") || strings.Contains(shown,
					planted[:4]) {
					t.Errorf("%s, %d bytes of the key before the limit of %d: %q", name, cut, limit,
						shown[max(0, len(shown)-80):])
				}
			}
		}
	}
}

// TestLimits tries each limit of the client.
func TestLimits(t *testing.T) {
	detail := func(t *testing.T, text string) string {
		return failure(t, refusing{status: http.StatusBadRequest, body: text}).Detail
	}
	limittest.Check(t, map[string]limittest.Row{
		"maxWindow": {At: 1<<30 - 1, Takes: func(t *testing.T, n int) bool {
			body := fmt.Sprintf(`{"error":{"code":"context_length_exceeded","message":"","n_ctx":%d}}`, n)
			return failure(t, refusing{status: http.StatusBadRequest, body: body}).Limit == n
		}},
		"maxDetail": {At: 2048, Takes: func(t *testing.T, n int) bool {
			return strings.HasSuffix(detail(t, strings.Repeat("x", n-1)+"!"), "x!")
		}},
		"maxDetailSource": {At: 65536, Takes: func(t *testing.T, n int) bool {
			return strings.HasSuffix(detail(t, "x"+strings.Repeat(" ", n-2)+"!"), "x !")
		}},
		"maxErrorText": {At: 65536, Takes: func(t *testing.T, n int) bool {
			// nested too deeply to be decoded
			return strings.HasSuffix(detail(t, "{"+strings.Repeat("[", 65)+strings.Repeat(" ", n-67)+"!"), "!")
		}},
		"minSecret": {At: 6, Least: true, Takes: func(t *testing.T, n int) bool {
			client := newClient(t, openai.Config{
				Name: "p", BaseURL: "http://localhost/v1", APIKey: openai.Secret("zyxwvut"[:n]),
				HTTPClient: &http.Client{Transport: refusing{status: http.StatusBadRequest,
					body: "not " + "zyxwvut"[:n] + "!"}},
			})
			_, err := client.Generate(t.Context(), question, nil)
			return strings.Contains(err.Error(), "not [redacted]!")
		}},
		"minCut": {At: 4, Least: true, Takes: func(t *testing.T, n int) bool {
			return strings.HasSuffix(detail(t, "gone "+planted[:n]), "gone [redacted]")
		}},
		"maxRetryAfter": {At: 7 * 24 * 3600, Takes: func(t *testing.T, n int) bool {
			h := http.Header{"Retry-After": {strconv.Itoa(n)}}
			return failure(t, refusing{status: http.StatusTooManyRequests, header: h}).RetryAfter == time.Duration(
				n)*time.Second
		}},
		"defaultIdleTimeout": {Test: "TestTheIdleTimeoutIs20Seconds"},
		"maxIdleConns":       {Test: "TestConnectionsAreReused"},
		"idleConnTime":       {None: "a connection that is reused for longer, or less long, answers the same"},
		"drainTime":          {None: "it only decides whether a connection is reused"},
		"maxDrain":           {None: "it only decides whether a connection is reused"},
	})
}
