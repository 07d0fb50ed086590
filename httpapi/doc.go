// Package httpapi is the HTTP API: it accepts messages, shows turns, streams
// their events, and steers what an operator may steer. openapi.json describes it,
// and is served.
//
// It keeps nothing but counters: every answer is read from the store, and a client that follows
// a turn never delays it. Errors are
// application/problem+json, in plain sentences; internal errors go to the log only.
package httpapi

//go:generate go run ./refgen
