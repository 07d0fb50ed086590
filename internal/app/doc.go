// Package app puts the house together: it turns a checked configuration into
// an open database and a running worker. It decides nothing of its own; what a
// command says to a person is package cli's.
package app

import _ "time/tzdata" // schedules name time zones, and not every machine has them
