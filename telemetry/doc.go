// Package telemetry exports traces and metrics by OpenTelemetry (OTLP over HTTP),
// and the same metrics for Prometheus. It is the only importer of OpenTelemetry's
// SDK and of Prometheus. Other packages report to it through narrow interfaces
// (agentturn.Observer, scheduler.Observer, and functions).
//
// Nothing here blocks or fails a turn: spans go to a bounded queue that drops what
// does not fit, metrics are added up in memory, and separate goroutines send them.
// No span, metric or log contains text of a conversation, unless Options.Content
// is set.
//
// A Telemetry is safe for concurrent use. It knows no database.
package telemetry
