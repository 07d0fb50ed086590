// Package client sends messages to agents and reads their replies from a program with a connection to
// Turnkeeper's database. The program needs no worker.
//
//   - [Enqueue] puts a message into an agent's inbox, optionally in your own transaction.
//   - [Wait] waits for the reply to a message.
//   - [Outbox] follows all replies in order, and [Replies] reads a page of them.
//   - [AnswerAsk] answers an ask of a turn.
//   - [Server.Watch] follows a message while it is handled, over the HTTP API instead of the database.
//
// The README lists the rights that the connection's role needs. The package does not know the secrets in
// the worker's settings, so messages are stored unmasked.
//
// Errors match those of the package turnkeeper (ErrEmptyMessage, ErrInvalidMessage, ErrUnknownAgent,
// ErrAgentRetired, ErrKeyConflict and ErrNotFound) and of the package asks (ErrClosed and ErrInvalid). They
// contain no rows of the database.
//
// All functions are safe for concurrent use if the connection is. The package imports only pgx and the
// packages turnkeeper and asks.
package client
