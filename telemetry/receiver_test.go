package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/golden"
	"turnkeeper/telemetry"
)

// TestWhatAReceiverGets checks where spans and metrics go, and that they say which process sent them.
func TestWhatAReceiverGets(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.Method+" "+r.URL.Path] += string(body)
	}))
	defer server.Close()
	told, err := telemetry.Start(t.Context(), telemetry.Options{
		Endpoint: server.URL + "/base/", Version: "v1.2.3", Instance: "run-7", Getenv: func(string) string {
			return ""
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	observe(t.Context(), told)
	if err := told.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, name := range map[string]string{"POST /base/v1/traces": "execute_tool send",
		"POST /base/v1/metrics": "turnkeeper.turn.duration"} {
		for _, want := range []string{name, "service.name.{1,4}turnkeeper", "service.version.{1,4}v1.2.3",
			"service.instance.id.{1,4}run-7", "telemetry.sdk.name"} {
			if !regexp.MustCompile("(?s)" + want).MatchString(got[path]) {
				t.Errorf("%s says nothing of %s", path, want)
			}
		}
	}
	if len(got) != 2 {
		t.Errorf("%d addresses were called", len(got))
	}
}

// TestMetricsWithoutASource leaves out one source at a time, and compares what is missing then with testdata.
func TestMetricsWithoutASource(t *testing.T) {
	t.Parallel()
	families := func(all telemetry.Sources) (names []string) {
		told, err := start(t, nil, "")
		if err == nil {
			err = told.Watch(all)
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(read(t, told)) {
			if name, isOurs := strings.CutPrefix(line, "# TYPE "); isOurs && !ofRuntime.MatchString(name) {
				names = append(names, strings.TrimSpace(name))
			}
		}
		return names
	}
	whole := families(sources())
	lines := append([]string{"# with all"}, whole...)
	for field := range reflect.TypeFor[telemetry.Sources]().Fields() {
		all := sources()
		reflect.ValueOf(&all).Elem().FieldByIndex(field.Index).SetZero()
		left := families(all)
		lines = append(lines, "# without "+field.Name)
		for _, name := range whole {
			if !slices.Contains(left, name) {
				lines = append(lines, name)
			}
		}
	}
	golden.File(t, "testdata/sources.txt", strings.Join(lines, "\n")+"\n")
}

// TestAFailedSourceOmitsTheQueue checks that the metrics of the whole database are omitted if any query fails, and
// counted once.
func TestAFailedSourceOmitsTheQueue(t *testing.T) {
	t.Parallel()
	failed := errors.New("no database")
	for name, fail := range map[string]func(*telemetry.Sources){
		"queue": func(s *telemetry.Sources) {
			s.Queue = func(context.Context) (q telemetry.Queue, _ error) { return q, failed }
		},
		"models": func(s *telemetry.Sources) {
			s.Models = func(context.Context) (map[string]bool, error) { return nil, failed }
		},
		"aside": func(s *telemetry.Sources) {
			s.Aside = func(context.Context) (map[string]int, error) { return nil, failed }
		},
		"levels": func(s *telemetry.Sources) {
			s.Levels = func(context.Context) (map[string]int, error) { return nil, failed }
		},
	} {
		all := sources()
		fail(&all)
		told, err := start(t, nil, "")
		if err == nil {
			err = told.Watch(all)
		}
		if err != nil {
			t.Fatal(err)
		}
		read(t, told)
		text := read(t, told)
		for _, metric := range []string{"turnkeeper_queue_messages", "turnkeeper_turns_open", "turnkeeper_model_down",
			"turnkeeper_set_aside", "turnkeeper_survival_level"} {
			if strings.Contains(text, "\n"+metric) {
				t.Errorf("%s: %s is there", name, metric)
			}
		}
		if !strings.Contains(text, "\nturnkeeper_queue_read_failures_total 1\n") || !strings.Contains(text,
			"\nturnkeeper_leases_held 121\n") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestTheHelpOfMetrics checks that /metrics explains each metric as the documentation does, and gives its kind and the
// bounds of its buckets.
func TestTheHelpOfMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, err := telemetry.Start(t.Context(), telemetry.Options{Getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = told.Close(context.Background()) }()
		observe(t.Context(), told)
		told.Request("GET", "", 200, time.Second)
		told.Delivery("shop", "dead", time.Second)
		told.Ticked(true, time.Second, nil)
		told.WorkerLost("clerk", true, 1)
		all, aside := sources(), sources().Aside
		failed := false
		all.Aside = func(ctx context.Context) (map[string]int, error) {
			if !failed {
				failed = true
				return nil, errors.New("once")
			}
			return aside(ctx)
		}
		if err := told.Watch(all); err != nil {
			t.Fatal(err)
		}
		read(t, told)
		time.Sleep(time.Minute)
		text := read(t, told)
		for _, m := range telemetry.Metrics() {
			help := fmt.Sprintf("# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n", m.Prometheus(), m.Doc, m.Kind)
			if !strings.Contains(text, help) {
				t.Errorf("the metrics lack %q", help)
			}
		}
		bounds := map[string]string{}
		var names []string
		for line := range strings.Lines(text) {
			name, rest, isBucket := strings.Cut(line, "_bucket{")
			if _, le, _ := strings.Cut(rest, `le="`); isBucket && !strings.HasPrefix(name, "go_") {
				le, _, _ = strings.Cut(le, `"`)
				if bounds[name] == "" {
					names = append(names, name)
				}
				if !strings.HasSuffix(bounds[name], " +Inf") {
					bounds[name] += " " + le
				}
			}
		}
		var lines []string
		for _, name := range names {
			lines = append(lines, name+":"+bounds[name])
		}
		golden.File(t, "testdata/buckets.txt", strings.Join(lines, "\n")+"\n")
	})
}

// TestManyReadersAtOnce reads and writes metrics from many goroutines. They share one query of the database.
func TestManyReadersAtOnce(t *testing.T) {
	t.Parallel()
	r := record(t, true)
	defer func() { _ = r.Close(context.Background()) }()
	var asked atomic.Int64
	all := sources()
	all.Queue = func(context.Context) (q telemetry.Queue, _ error) { asked.Add(1); return q, nil }
	if err := r.Watch(all); err != nil {
		t.Fatal(err)
	}
	handle, quiet := telemetry.ReportTo(zap.NewNop(), mask)
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			for i := range 20 {
				r.Request("GET", fmt.Sprint("/", n, "/", i), 200, time.Second)
				r.WorkerLost(fmt.Sprint("agent", i), true, 1)
				r.Ticked(false, time.Second, nil)
				handle(errors.New("refused"))
			}
			quiet()
			read(t, r.Telemetry)
		})
	}
	group.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the database was asked %d times", n)
	}
	if text := read(t, r.Telemetry); !strings.Contains(text, `turnkeeper_leases_lost_total{agent="agent7"} 4`) {
		t.Error(text)
	}
}

// TestTheServerOfMetrics checks what the separate server answers, and that it closes connections that do not end in
// time.
func TestTheServerOfMetrics(t *testing.T) {
	t.Parallel()
	told, err := start(t, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := told.Serve(listener, zap.NewNop())
	for asked, want := range map[string]int{"GET /metrics": 200, "POST /metrics": 405, "GET /": 404,
		"GET /metrics/x": 404} {
		method, path, _ := strings.Cut(asked, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s is answered %d, want %d", asked, res.StatusCode, want)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n1"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Close(over); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection is open: %v", err)
	}
}

// TestEverySettingOfTheEnvironment compares what is said of a wrong value of each variable with testdata, for a signal
// that is sent, and for none.
func TestEverySettingOfTheEnvironment(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	values := []string{"none", "otlp", "true", "0", "1", "-1", "0.5", "1.5", "http/protobuf", "gzip", "always_on",
		"prometheus", "a=b", "a=%zz,", " , ", "https://h?q", "FALSE"}
	var lines []string
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
		"OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
		"OTEL_EXPORTER_OTLP_METRICS_COMPRESSION",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
		"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
		"OTEL_RESOURCE_ATTRIBUTES",
		"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT", "OTEL_BSP_SCHEDULE_DELAY",
		"OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_OTHER",
	} {
		for _, endpoint := range []string{"", server.URL} {
			var good []string
			said := map[string][]string{}
			for _, value := range values {
				told, err := telemetry.Start(t.Context(), telemetry.Options{Endpoint: endpoint,
					Getenv: func(of string) string { return map[string]string{name: value}[of] }})
				if err == nil {
					good = append(good, fmt.Sprintf("%q: %t", value, told.Traces()))
					_ = told.Close(t.Context())
					continue
				}
				text := strings.ReplaceAll(err.Error(), fmt.Sprintf("%q", value), "VALUE")
				said[text] = append(said[text], value)
			}
			if lines = append(lines, fmt.Sprintf("# %s, with an endpoint: %t", name, endpoint != "")); len(said) > 0 {
				lines = append(lines, "takes, and sends traces: "+strings.Join(good, ", "))
			}
			for _, text := range slices.Sorted(maps.Keys(said)) {
				lines = append(lines, fmt.Sprintf("%s\n  of %q", text, said[text]))
			}
		}
	}
	golden.File(t, "testdata/environment.txt", strings.Join(lines, "\n")+"\n")
}
