package telemetry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper/telemetry"
)

// start starts telemetry with env as its environment variables.
func start(t *testing.T, env map[string]string, endpoint string) (*telemetry.Telemetry, error) {
	t.Helper()
	told, err := telemetry.Start(t.Context(), telemetry.Options{Endpoint: endpoint, Getenv: func(name string) string {
		return env[name]
	}})
	if err == nil {
		t.Cleanup(func() { _ = told.Close(context.Background()) })
	}
	return told, err
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	const to = "http://127.0.0.1:1"
	for _, c := range []struct {
		name     string
		env      map[string]string
		endpoint string
		traces   bool
		says     string
	}{
		{"nothing is set", nil, "", false, ""},
		{"an endpoint", nil, to, true, ""},
		{"an endpoint with a path", nil, to + "/otlp/", true, ""},
		{"for traces alone", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": to + "/v1/traces"}, "", true, ""},
		{"for metrics alone", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": to + "/v1/metrics"},
			"", false, ""},
		{"no traces", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, to, false, ""},
		{"metrics for Prometheus alone", map[string]string{"OTEL_METRICS_EXPORTER": "prometheus"}, to, true, ""},
		{"disabled", map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			to, false, ""},
		{"what nobody uses is not looked at", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", false, ""},
		{"well set", map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
			"OTEL_TRACES_SAMPLER_ARG": "0.5", "OTEL_EXPORTER_OTLP_HEADERS": "a=b, c=d%20e"}, to, true, ""},

		{"no URL", nil, "collector", false, "must be a URL"},
		{"a password", nil, "http://u:p@h", false, "no user or password"},
		{"a query", nil, to + "?a=b", false, "without ? and #"},
		{"another protocol", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"}, to, false,
			`OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is "http/json"`},
		{"another compression", map[string]string{"OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}, to, false, "gzip or none"},
		{"a time in words", map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}, to, false,
			"a whole number above 0"},
		{"no queue", map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, to, false, "OTEL_BSP_MAX_QUEUE_SIZE"},
		{"no interval", map[string]string{"OTEL_METRIC_EXPORT_INTERVAL": "-1"}, to, false,
			"OTEL_METRIC_EXPORT_INTERVAL"},
		{"no sampler", map[string]string{"OTEL_TRACES_SAMPLER": "sometimes"}, to, false, "OTEL_TRACES_SAMPLER"},
		{"no ratio", map[string]string{"OTEL_TRACES_SAMPLER_ARG": "half"}, to, false, "a number from 0 to 1"},
		{"a header without a name", map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "=b"}, to, false,
			"OTEL_EXPORTER_OTLP_HEADERS must be name=value"},
		{"a bad escape", map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a=%zz"}, to, false, "values as in URLs"},
		{"attributes that are none", map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "here"}, to, false,
			"OTEL_RESOURCE_ATTRIBUTES"},
		{"metrics by somebody else", map[string]string{"OTEL_METRICS_EXPORTER": "statsd"}, to, false, "otlp or none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			told, err := start(t, c.env, c.endpoint)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("it says %v", err)
				}
				return
			}
			if err != nil || told.Traces() != c.traces {
				t.Errorf("traces are sent: %v, %v", told.Traces(), err)
			}
		})
	}
}

func read(t *testing.T, told *telemetry.Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	told.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("answered %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestTheDatabaseIsAskedSeldom checks that reading metrics queries the database at most once in five seconds, with a
// timeout of two seconds, and that metrics without a result are omitted.
func TestTheDatabaseIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, err := telemetry.Start(t.Context(), telemetry.Options{Getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = told.Close(context.Background()) }()
		var asked atomic.Int64
		var away atomic.Bool
		err = told.Watch(telemetry.Sources{Queue: func(ctx context.Context) (telemetry.Queue, error) {
			n := asked.Add(1)
			if away.Load() {
				<-ctx.Done()
				return telemetry.Queue{}, errors.New("the database does not answer")
			}
			return telemetry.Queue{Messages: int(n), Oldest: -time.Hour, Running: 2}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			text := read(t, told)
			if !strings.Contains(text, "\nturnkeeper_queue_messages 1\n") || !strings.Contains(text,
				"\nturnkeeper_queue_age_seconds 0\n") ||
				!strings.Contains(text, `turnkeeper_turns_open{state="running"} 2`) {
				t.Fatal(text)
			}
			<-time.After(400 * time.Millisecond)
		}
		<-time.After(time.Second)
		away.Store(true)
		began := time.Now()
		for range 3 {
			if text := read(t, told); strings.Contains(text, "turnkeeper_queue_messages") {
				t.Fatal(text)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("three looks took %s", took)
		}
		<-time.After(5 * time.Second)
		away.Store(false)
		text := read(t, told)
		if !strings.Contains(text, "\nturnkeeper_queue_messages 3\n") || asked.Load() != 3 {
			t.Errorf("the database was asked %d times:\n%s", asked.Load(), text)
		}
		if text = read(t, told); !strings.Contains(text, "\nturnkeeper_queue_read_failures_total 1\n") {
			t.Error(text)
		}
	})
}

// TestWaitsAreMetrics checks what is told of turns that wait: how many, for how long, and until when.
func TestWaitsAreMetrics(t *testing.T) {
	t.Parallel()
	told, err := start(t, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	err = told.Watch(telemetry.Sources{Queue: func(context.Context) (telemetry.Queue, error) {
		return telemetry.Queue{Waits: 5, Reasons: []telemetry.Wait{
			{Reason: "person", Turns: 3, Age: 2 * time.Hour, Left: 10 * time.Minute}, {Reason: "sub_agents", Turns: 2,
				Age: -1, Left: -1},
		}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, told)
	for line, want := range map[string]bool{
		`turnkeeper_turns_open{state="waiting"} 5`: true, `turnkeeper_turns_waiting{reason="person"} 3`: true,
		`turnkeeper_turns_waiting_age_seconds{reason="person"} 7200`: true,
		`turnkeeper_turns_waiting_left_seconds{reason="person"} 600`: true,
		`turnkeeper_turns_waiting{reason="sub_agents"} 2`:            true,
		`turnkeeper_turns_waiting_age_seconds{reason="sub_agents"}`:  false,
		`turnkeeper_turns_waiting_left_seconds{reason="sub_agents"}`: false,
	} {
		if strings.Contains(text, "\n"+line) != want {
			t.Errorf("%s: want %t in\n%s", line, want, text)
		}
	}
}
