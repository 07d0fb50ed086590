// Package app runs a worker: it opens the database of checked settings, makes what
// turns need (package setup), and starts and stops what runs in the background. It
// decides nothing of its own; what a program says to a person is for the packages
// of internal/cli.
package app
