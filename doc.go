// Package turnkeeper holds the nouns of Turnkeeper: messages, turns, leases,
// rounds, tool calls, outputs, events and replies, the states they may be in
// and the moves between those states, and the errors that callers branch on.
//
// It does no I/O and imports nothing of this module. Every other package may
// import it. All types are plain values: copying one is safe, and none of them
// may be used by several goroutines while one of them writes to it.
package turnkeeper
