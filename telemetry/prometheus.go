package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/protobuf/proto"
)

// Limits of reads of the metrics.
const (
	scrapeTime  = 10 * time.Second
	scrapesOnce = 4 // at the same time
)

// newPrometheus returns the exporter for Prometheus and its HTTP handler.
func newPrometheus() (sdkmetric.Reader, http.Handler, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	handler := promhttp.HandlerFor(exactNames{registry}, promhttp.HandlerOpts{Timeout: scrapeTime,
		MaxRequestsInFlight: scrapesOnce})
	return reader, handler, nil
}

// exactNames restores the names of metrics that must not change: the exporter
// appends unit and kind to all names.
type exactNames struct{ prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (g exactNames) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.Gatherer.Gather()
	for _, family := range families {
		if name, ok := exact[family.GetName()]; ok {
			family.Name = proto.String(name)
		}
	}
	return families, err
}

// exact maps the exporter's names to the exact ones.
var exact = func() map[string]string {
	names := map[string]string{}
	for _, m := range Metrics() {
		if m.exact {
			promised := m.Name
			m.exact = false
			names[m.Prometheus()] = promised
		}
	}
	return names
}()
