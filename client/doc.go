// Package client sends messages to agents and reads their replies, from a program of your own
// that has a connection to the database of Turnkeeper. It needs no worker in the process.
//
//   - [Enqueue] puts a message into an agent's inbox, in your own transaction if you like.
//   - [Wait] waits for the reply to a message.
//   - [Outbox] follows all replies in order, and [Replies] reads a page of them.
//
// The connection's role needs the rights that the README lists. What the worker masks, because its
// settings name it as a secret, is not known here: a message is kept as it is sent.
//
// Errors match those of the package turnkeeper: ErrEmptyMessage, ErrInvalidMessage, ErrUnknownAgent,
// ErrAgentRetired, ErrKeyConflict and ErrNotFound. They hold the database's sentence and none of
// its rows.
//
// The package is safe for concurrent use as far as the connection is. It imports pgx and the nouns
// of the package turnkeeper, and nothing of the worker.
package client
