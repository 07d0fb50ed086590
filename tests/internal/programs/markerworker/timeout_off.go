//go:build !race

package main

import "time"

// misbehaveTimeout is short, for most of the behaviours use all of it, and long
// enough for ten million bytes to be stored.
const misbehaveTimeout = 500 * time.Millisecond
