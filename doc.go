// Package turnkeeper defines the types of Turnkeeper: messages, turns, leases,
// rounds, tool calls, outputs, events and replies, their states and the moves
// between states, and the errors that callers check.
//
// It does no I/O and imports no other package of this module. Every package
// may import it. All types are plain values: they are safe to copy, and not
// safe for concurrent use while one goroutine writes.
package turnkeeper
