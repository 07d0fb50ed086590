package config

import (
	"net/url"
	"strings"
)

// otlpHeaders are the variables in which OpenTelemetry's exporters find headers, such as keys.
var otlpHeaders = []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
	"OTEL_EXPORTER_OTLP_METRICS_HEADERS"}

// readOTLPSecrets adds secret headers in OpenTelemetry's variables to the masked secrets. Their form is
// name=value,name=value with percent-encoded values.
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
				plain = strings.TrimSpace(plain)
				l.config.otlpSecrets = append(l.config.otlpSecrets, secretsOfHeader(plain)...)
			}
		}
	}
}
