// Package memory keeps Turnkeeper's durable state in memory, by the rules of
// package storage and of the schema: for simulations, and for tests of agents
// and tools that want no database. It passes the same suite as Postgres does
// (internal/storesuite).
//
// New makes a Store: the database itself. The Store's own methods (Message, Turn,
// Grants, Check, ...) look at it from outside of all processes, and never fail. A
// process works through a Conn of its own (Store.Connect), whose requests go over a
// Wire that the test may supply: it delays requests, refuses them, or loses their
// answers. A Conn is the scheduler's Store, takes jobs as a worker does (Fetch), reads
// turns (Load) and gives each dispatch its Journal. Conn.Break does what the database
// does when a process has died: it undoes the process's transactions.
//
// As in Postgres, one request is one transaction, except for a tick and a
// transactional tool call, which hold the locks of what they have touched until
// they end, break, or stay idle for too long; other writers of those turns wait.
//
// It keeps the state that decisions depend on: messages, leases, turns with their
// journals and events, outputs, replies, schedules, heartbeats. It keeps no notes, no
// spend, and nothing that an operator sets.
//
// All methods are safe for concurrent use, except that a Journal belongs to one
// goroutine. Nothing sleeps: the only timers are those of waits for a lock and
// of a writer's retries, so that the package can run in a synctest bubble. The
// database's clock is a function handed in, and may be stepped.
package memory
