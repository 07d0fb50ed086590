// Package pgdev runs a private Postgres server for a first run and for tests.
//
// All processes that open the same folder share its server: the first one starts it, later ones join it,
// and the last one stops it. The data stays. The next process joins a server left by a killed process, and
// takes over a folder left by a killed server.
//
// The server listens only on a Unix socket in a folder that only its user can enter, and requires a random
// password, which is stored in the server's folder. It runs in a separate session, so that Ctrl-C in a
// terminal does not reach it.
//
// Installed server binaries are used if there are any (see [Options.Dir] about root); otherwise they are
// downloaded once into the user's cache folder.
//
// The package works on Unix systems. It must not import packages storage and jobs, whose tests use it.
package pgdev
