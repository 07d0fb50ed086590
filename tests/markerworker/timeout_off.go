//go:build !race

package main

import "time"

// misbehaveTimeout is short: most of the behaviours use all of it.
const misbehaveTimeout = 500 * time.Millisecond
