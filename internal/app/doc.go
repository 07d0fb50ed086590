// Package app runs a worker with checked settings: it opens the database, sets up what turns need
// (package setup), and starts and stops the background tasks. Output for people is in the packages of
// internal/cli.
package app
