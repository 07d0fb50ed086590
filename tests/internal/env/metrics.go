package env

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Scrape reads the metrics of a worker. base is the base URL of its API.
func Scrape(t *testing.T, base string) map[string]*dto.MetricFamily {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v\n%s", resp.Status, err, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return families
}

// Sum returns the total of all series of a metric that have the labels, given as name
// and value. A histogram adds its number of observations.
func Sum(families map[string]*dto.MetricFamily, name string, labels ...string) (total float64) {
	for _, m := range families[name].GetMetric() {
		if !HasLabels(m, labels) {
			continue
		}
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return total
}

// HasLabels reports whether a series has the labels, given as name and value.
func HasLabels(m *dto.Metric, labels []string) bool {
	for n := 0; n < len(labels); n += 2 {
		if !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
			return l.GetName() == labels[n] && l.GetValue() == labels[n+1]
		}) {
			return false
		}
	}
	return true
}
