// Package httpapi is the HTTP API: it accepts messages, shows turns, streams their events, and
// offers the operators' actions. openapi.json describes it, and is served.
//
// It keeps no state but counters: every answer is read from the store, and a client that follows a
// turn never delays it. Errors are application/problem+json with a plain sentence; internal errors
// are only logged.
package httpapi

//go:generate go -C ../dev run ./refgen/httpapi
