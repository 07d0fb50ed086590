package client

import "time"

// SetPoll changes the polling interval.
func SetPoll(d time.Duration) (restore func()) {
	before := poll
	poll = d
	return func() { poll = before }
}

// Follow and Passes are what Wait and Outbox are made of.
var (
	Follow = follow
	Passes = passes
)
