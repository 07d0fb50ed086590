package client

import "time"

// SetPoll changes how often is looked when no doorbell rings.
func SetPoll(d time.Duration) (restore func()) {
	before := poll
	poll = d
	return func() { poll = before }
}
