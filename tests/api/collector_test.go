package api_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"turnkeeper/tests/internal/env"
)

// A collector receives OTLP over HTTP.
type collector struct {
	t    testing.TB
	url  string
	hang chan struct{} // answers wait until it is closed; nil: they do not wait

	mu      sync.Mutex
	spans   []sentSpan
	metrics map[string]bool // names
	asked   int             // number of requests
	text    strings.Builder // everything received, as text
	more    chan struct{}   // closed and replaced at each request
}

// A sentSpan is a received span.
type sentSpan struct {
	*tracepb.Span
	instance string // instance id of the sending process
}

func newCollector(t testing.TB) *collector {
	r := &collector{t: t, metrics: map[string]bool{}, more: make(chan struct{})}
	server := httptest.NewServer(r)
	r.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return r
}

// hangs makes the collector read requests without answering until the test ends.
func (r *collector) hangs() *collector {
	r.hang = make(chan struct{})
	r.t.Cleanup(func() { close(r.hang) })
	return r
}

func (r *collector) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // cut off because the sender ends
	}
	if err := r.take(req, body); err != nil {
		r.t.Errorf("what was sent to %s is invalid: %v", req.URL.Path, err)
	}
	if r.hang != nil {
		select {
		case <-r.hang:
		case <-req.Context().Done():
		}
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // an empty body means success
}

func (r *collector) take(req *http.Request, body []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		close(r.more)
		r.more = make(chan struct{})
	}()
	r.asked++
	if kind := req.Header.Get("Content-Type"); kind != "application/x-protobuf" {
		return fmt.Errorf("the type is %q", kind)
	}
	switch req.URL.Path {
	case "/v1/traces":
		var traces collecttraces.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &traces); err != nil {
			return err
		}
		r.text.WriteString(prototext.Format(&traces))
		for _, from := range traces.ResourceSpans {
			for _, scope := range from.ScopeSpans {
				for _, span := range scope.Spans {
					r.spans = append(r.spans, sentSpan{span, text1(from.Resource.Attributes, "service.instance.id")})
				}
			}
		}
	case "/v1/metrics":
		var metrics collectmetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &metrics); err != nil {
			return err
		}
		r.text.WriteString(prototext.Format(&metrics))
		for _, from := range metrics.ResourceMetrics {
			for _, scope := range from.ScopeMetrics {
				for _, metric := range scope.Metrics {
					r.metrics[metric.Name] = true
				}
			}
		}
	default:
		return fmt.Errorf("nothing at this path")
	}
	return nil
}

// await waits until find finds a value, and returns it.
func await[V any](r *collector, what string, find func() (V, bool)) V {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), env.Patience)
	defer cancel()
	for {
		r.mu.Lock()
		v, ok := find()
		more := r.more
		r.mu.Unlock()
		if ok {
			return v
		}
		select {
		case <-more:
		case <-ctx.Done():
			r.t.Fatalf("no %s was received; there are %q", what, r.names())
		}
	}
}

// awaitSpan waits for a span with the name that satisfies so, and returns the first.
func (r *collector) awaitSpan(name string, so func(sentSpan) bool) sentSpan {
	r.t.Helper()
	return await(r, "span "+name, func() (sentSpan, bool) {
		for _, s := range r.spans {
			if s.Name == name && so(s) {
				return s, true
			}
		}
		return sentSpan{}, false
	})
}

func any1(sentSpan) bool { return true }

// all returns the spans so far, by name and start.
func (r *collector) all() []sentSpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.spans)
	slices.SortStableFunc(all, func(a, b sentSpan) int {
		return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano))
	})
	return all
}

func (r *collector) names() (names []string) {
	for _, s := range r.all() {
		names = append(names, s.Name)
	}
	return names
}

// everything returns all received data as text.
func (r *collector) everything() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// attribute returns an attribute as text, or an empty string.
func (s sentSpan) attribute(name string) string { return text1(s.Attributes, name) }

func text1(attributes []*common.KeyValue, name string) string {
	for _, a := range attributes {
		if a.Key != name {
			continue
		}
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			return v.StringValue
		case *common.AnyValue_IntValue:
			return fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			return fmt.Sprint(v.BoolValue)
		case *common.AnyValue_ArrayValue:
			var texts []string
			for _, one := range v.ArrayValue.Values {
				texts = append(texts, one.GetStringValue())
			}
			return strings.Join(texts, ",")
		default:
			return fmt.Sprint(a.Value)
		}
	}
	return ""
}

func id(b []byte) string { return hex.EncodeToString(b) }
