// Package database opens the configured database: the Postgres of database_url, or a private one in the
// data folder, which it restarts if it dies. It links neither workers nor the queue.
package database
