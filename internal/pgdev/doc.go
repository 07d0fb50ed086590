// Package pgdev keeps a private Postgres server for a first run and for tests.
//
// A server lives in one folder, and all processes that open the same folder
// share it: the first one starts it, later ones join it, the last one out
// stops it. The data stays. A server that was left behind by a killed process
// is joined by the next one, and a folder left behind by a killed server is
// taken over.
//
// The server listens on a Unix socket only, in a short folder that its user
// alone may enter, and wants a random password which is kept in the folder.
// It runs in a session of its own, so that Ctrl-C in a terminal reaches the
// program and not the database under it.
//
// Installed server binaries are used where there are any (see [Options.Dir]
// for what happens to root); otherwise they are downloaded once into the
// user's cache folder.
//
// The package works on Unix systems. It must not import packages storage and
// jobs: they are tested on top of it.
package pgdev
