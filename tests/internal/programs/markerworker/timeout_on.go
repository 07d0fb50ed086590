//go:build race

package main

import "time"

// misbehaveTimeout leaves room for what the race detector costs.
const misbehaveTimeout = 3 * time.Second
