// Package memory keeps Turnkeeper's durable state in memory, by the rules of
// package storage and of the schema, for simulations and for tests of agents
// and tools without a database. It passes the same suite as Postgres does
// (internal/storesuite).
//
// New makes a Store: the database itself. The Store's own methods (Message, Turn,
// Grants, Check, ...) read it from outside of all processes, and never fail. Each
// process has its own Conn (Store.Connect), whose requests go over a Wire. A test may
// supply a Wire that delays requests, refuses them, or loses their answers. A Conn is
// the scheduler's Store, fetches jobs like a worker (Fetch), reads turns (Load) and
// gives each dispatch its Journal. Conn.Break undoes the process's transactions, as
// the database does when a process has died.
//
// As in Postgres, one request is one transaction, except for a tick and a
// transactional tool call. These hold their locks until they end, break, or stay idle
// for too long; other writers of the same turns wait.
//
// It keeps the state on which decisions depend: messages, leases, turns with their
// journals and events, outputs, replies, schedules, heartbeats. It keeps no notes, no
// spend, and no settings of operators.
//
// All methods are safe for concurrent use, except that a Journal belongs to one
// goroutine. The only timers are those of waits for a lock and of a writer's
// retries, so that the package can run in a synctest bubble. The database's clock
// is Options.Now, which may jump.
package memory
