// Package database opens the database that the settings name: the Postgres of DATABASE_URL, or the private one in the
// data folder, which it starts again when that dies. It knows nothing of workers and links no queue.
package database
