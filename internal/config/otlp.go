package config

import (
	"net/url"
	"strings"
)

// Variables by which OpenTelemetry's exporters are given headers, such as keys.
var otlpHeaders = []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"}

// readOTLPSecrets takes note of headers that the exporters find by themselves, so
// that they are masked: name=value, with commas between, values as in URLs.
func (l *loader) readOTLPSecrets() {
	for _, name := range otlpHeaders {
		text, _ := l.env(name)
		for pair := range strings.SplitSeq(text, ",") {
			name, value, _ := strings.Cut(pair, "=")
			if !secretHeader.MatchString(name) {
				continue
			}
			value = strings.TrimSpace(value)
			l.config.otlpSecrets = append(l.config.otlpSecrets, value)
			if plain, err := url.PathUnescape(value); err == nil {
				l.config.otlpSecrets = append(l.config.otlpSecrets, plain, strings.TrimPrefix(plain, "Bearer "))
			}
		}
	}
}
