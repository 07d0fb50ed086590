// Package httpapi is the HTTP API: it accepts messages, shows turns, streams
// their events, and steers what an operator may steer. openapi.json describes it,
// and is served.
//
// It keeps nothing but counters: whatever it answers is read from the store, and
// whoever watches a turn makes nobody wait who runs it. Errors are
// application/problem+json, in plain sentences without what is inside; those go
// to the log.
package httpapi

//go:generate go run ./refgen
