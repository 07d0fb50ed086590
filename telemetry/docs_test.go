package telemetry_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"turnkeeper/internal/golden"
	"turnkeeper/telemetry"
)

const (
	page     = "../docs/telemetry.md"
	tableTop = "<!-- metrics: written by go test ./telemetry -update -->\n"
	tableEnd = "<!-- end of metrics -->\n"
)

// TestTheDocumentationHasEveryMetric checks that the table in the documentation equals the catalogue.
func TestTheDocumentationHasEveryMetric(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| metric | at `/metrics` | kind, unit | labels | what |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range telemetry.Metrics() {
		labels := "none"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.PrometheusLabels(), "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s, %s | %s | %s |\n", m.Name, m.Prometheus(), m.Kind,
			strings.Trim(m.Unit, "{}"), labels, m.Doc)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableTop)
	old, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	if old == table.String() {
		return
	}
	if !golden.Updating() {
		t.Fatalf("the table in %s is not the catalogue's: go test ./telemetry -update writes it anew", page)
	}
	if err := os.WriteFile(page, []byte(before+tableTop+table.String()+tableEnd+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Patterns for parts of a query: a metric with its matchers, a label in a matcher, and a list of grouping labels.
var (
	selector = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
)

// promQL lists the words of PromQL that these queries use.
var promQL = []string{"rate", "increase", "sum", "max", "min", "avg", "histogram_quantile", "by", "on", "or", "and",
	"unless", "clamp_min", "absent", "time", "s", "m", "h", "__rate_interval"}

// ours lists labels that Prometheus and OpenTelemetry add to series.
var ours = []string{"instance", "job", "le", "service_instance_id"}

// checkQuery returns the problems of a query and the number of our metrics in it.
func checkQuery(query string) (problems []string, metrics int) {
	names := map[string]telemetry.Metric{"up": {}, "process_resident_memory_bytes": {}, "go_goroutines": {}}
	for _, m := range telemetry.Metrics() {
		name := m.Prometheus()
		if m.Kind != telemetry.Histogram {
			names[name] = m
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			names[name+suffix] = m
		}
	}
	labels := slices.Clone(ours)
	groups := grouping.FindAllStringSubmatch(query, -1)
	bare := grouping.ReplaceAllString(query, " ")
	for _, found := range selector.FindAllStringSubmatch(bare, -1) {
		if slices.Contains(promQL, found[1]) && found[2] == "" {
			continue
		}
		m, ok := names[found[1]]
		if !ok {
			problems = append(problems, "there is no metric "+found[1])
			continue
		}
		metrics++
		labels = append(labels, m.PrometheusLabels()...)
		for _, wanted := range matcher.FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(append(slices.Clone(ours), m.PrometheusLabels()...), wanted[1]) {
				problems = append(problems, fmt.Sprintf("%s has no label %s", found[1], wanted[1]))
			}
		}
	}
	for _, group := range groups {
		for label := range strings.SplitSeq(group[1], ",") {
			if label = strings.TrimSpace(label); label != "" && !slices.Contains(labels, label) {
				problems = append(problems, fmt.Sprintf("no metric of it has the label %s", label))
			}
		}
	}
	return problems, metrics
}

func TestCheckQuery(t *testing.T) {
	t.Parallel()
	for query, problem := range map[string]string{
		`sum by (agent) (rate(turnkeeper_turns_total{state="failed"}[5m]))`:                         "",
		`histogram_quantile(0.95, sum by (le) (rate(turnkeeper_turn_duration_seconds_bucket[5m])))`: "",
		`sum(rate(turnkeeper_turn_total[5m]))`:                                                      "there is no metric turnkeeper_turn_total",
		`sum by (model) (rate(turnkeeper_turns_total[5m]))`:                                         "no metric of it has the label model",
		`rate(turnkeeper_turns_total{outcome="failed"}[5m])`:                                        "turnkeeper_turns_total has no label outcome",
		`histogram_quantile(0.95, sum by (le) (rate(turnkeeper_turn_duration_seconds[5m])))`:        "there is no metric turnkeeper_turn_duration_seconds",
	} {
		problems, _ := checkQuery(query)
		if got := strings.Join(problems, "; "); got != problem {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// TestExamplesAskForWhatThereIs checks that the queries of the example dashboard and rules use existing metrics and
// labels, and that together they use every metric.
func TestExamplesAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/dashboards/turnkeeper.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../docs/dashboards/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	ids := map[int]bool{}
	for _, panel := range board.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 || ids[panel.ID] {
			t.Errorf("the panel %q has no query, or another's id", panel.Title)
		}
		ids[panel.ID] = true
		for n, target := range panel.Targets {
			queries[fmt.Sprint(panel.Title, " ", n)] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	for n, rule := range regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllStringSubmatch(string(rules), -1) {
		queries[fmt.Sprint("rule ", n)] = rule[1]
	}
	if len(queries) < 25 {
		t.Errorf("there are only %d queries", len(queries))
	}
	shown := strings.Join(slices.Collect(maps.Values(queries)), "\n")
	for name, query := range queries {
		problems, metrics := checkQuery(query)
		if len(problems) > 0 || metrics == 0 {
			t.Errorf("%s: %s asks for %d metrics: %s", name, query, metrics, strings.Join(problems, "; "))
		}
	}
	for _, m := range telemetry.Metrics() {
		if !strings.Contains(shown, m.Prometheus()) {
			t.Errorf("no panel and no rule has %s", m.Prometheus())
		}
	}
}
