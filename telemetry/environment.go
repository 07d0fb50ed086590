package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// An environment reads OpenTelemetry's standard variables.
type environment struct {
	get  func(string) string
	errs []error
}

// A signal is a kind of telemetry.
type signal struct {
	name     string // traces, metrics
	exporter string // the variable that says who gets it
	path     string // below the endpoint
}

var (
	traces  = signal{"traces", "OTEL_TRACES_EXPORTER", "/v1/traces"}
	metrics = signal{"metrics", "OTEL_METRICS_EXPORTER", "/v1/metrics"}
)

// variable returns the name of the OTLP variable for this signal only.
func (s signal) variable(what string) string {
	return "OTEL_EXPORTER_OTLP_" + strings.ToUpper(s.name) + "_" + what
}

func (e *environment) bad(format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf(format, args...))
}

// disabled reports whether OTEL_SDK_DISABLED is true.
func (e *environment) disabled() bool {
	switch value := e.get("OTEL_SDK_DISABLED"); strings.ToLower(value) {
	case "", "false":
		return false
	case "true":
		return true
	default:
		e.bad("OTEL_SDK_DISABLED is %q: it must be true or false", value)
		return false
	}
}

// endpoint returns the full URL that a signal is sent to, or "" if it is not sent.
func (e *environment) endpoint(s signal, base string) string {
	switch who := e.get(s.exporter); who {
	case "", "otlp":
	case "none":
		return ""
	case "prometheus":
		if s == metrics { // Prometheus reads /metrics anyway
			return ""
		}
		fallthrough
	default:
		e.bad("%s is %q: it must be otlp or none", s.exporter, who)
		return ""
	}
	own := e.get(s.variable("ENDPOINT"))
	if own == "" && base == "" {
		return ""
	}
	where, name := own, s.variable("ENDPOINT")
	if own == "" {
		where, name = strings.TrimSuffix(base, "/")+s.path, "otlp_endpoint (or OTEL_EXPORTER_OTLP_ENDPOINT)"
	}
	if err := CheckEndpoint(where); err != nil {
		e.bad("%s: %w", name, err)
	}
	e.check(s)
	return where
}

// CheckEndpoint validates the URL of an OTLP receiver. Its error does not contain
// the URL, which may hold a secret.
func CheckEndpoint(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it must be a URL such as http://localhost:4318")
	case u.User != nil:
		return errors.New("it must hold no user or password: send these by OTEL_EXPORTER_OTLP_HEADERS")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("it must be a URL without ? and #")
	default:
		return nil
	}
}

// check validates the variables that the exporter of a signal reads itself: the
// exporter would only log errors.
func (e *environment) check(s signal) {
	both := func(what string) [2]string { return [2]string{"OTEL_EXPORTER_OTLP_" + what, s.variable(what)} }
	for _, name := range both("PROTOCOL") {
		e.oneOf(name, "http/protobuf")
	}
	for _, name := range both("COMPRESSION") {
		e.oneOf(name, "gzip", "none")
	}
	for _, name := range both("TIMEOUT") {
		e.millis(name)
	}
	for _, name := range both("HEADERS") {
		e.pairs(name)
	}
	e.pairs("OTEL_RESOURCE_ATTRIBUTES")
	if s == metrics {
		e.millis("OTEL_METRIC_EXPORT_INTERVAL")
		e.millis("OTEL_METRIC_EXPORT_TIMEOUT")
		return
	}
	for _, name := range []string{"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE"} {
		e.millis(name)
	}
	e.oneOf("OTEL_TRACES_SAMPLER", "always_on", "always_off", "traceidratio", "parentbased_always_on",
		"parentbased_always_off", "parentbased_traceidratio")
	if ratio := e.get("OTEL_TRACES_SAMPLER_ARG"); ratio != "" {
		if n, err := strconv.ParseFloat(ratio, 64); err != nil || n < 0 || n > 1 {
			e.bad("OTEL_TRACES_SAMPLER_ARG is %q: it must be a number from 0 to 1", ratio)
		}
	}
}

func (e *environment) oneOf(name string, words ...string) {
	if value := e.get(name); value != "" && !slices.Contains(words, value) {
		e.bad("%s is %q: it must be %s", name, value, strings.Join(words, " or "))
	}
}

func (e *environment) millis(name string) {
	if value := e.get(name); value != "" {
		if n, err := strconv.Atoi(value); err != nil || n <= 0 {
			e.bad("%s is %q: it must be a whole number above 0", name, value)
		}
	}
}

// pairs validates a list of pairs. Its error does not contain the value, which may
// be a secret.
func (e *environment) pairs(name string) {
	for pair := range strings.SplitSeq(e.get(name), ",") {
		key, value, ok := strings.Cut(pair, "=")
		_, err := url.PathUnescape(value)
		if strings.TrimSpace(pair) != "" && (!ok || strings.TrimSpace(key) == "" || err != nil) {
			e.bad("%s must be name=value, with commas between, and values as in URLs", name)
			return
		}
	}
}
