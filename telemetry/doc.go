// Package telemetry tells the outside what a process does: traces and metrics by
// OpenTelemetry, sent by OTLP over HTTP, and the same metrics for Prometheus to
// read. It is the one importer of OpenTelemetry's SDK and of Prometheus; what it
// tells of comes through the narrow interfaces of the packages that know it
// (agentturn.Observer, scheduler.Observer, and functions).
//
// Nothing here blocks or fails a turn: spans go to a bounded queue that drops what
// does not fit, numbers are added up in memory, and all sending is done by
// goroutines of its own. What a conversation says is in no span, metric or log,
// unless Options.Content asks for it.
//
// A Telemetry is safe for concurrent use. It knows no database.
package telemetry
