package webhooks

import "time"

// RefuseBy replaces the check that refuses addresses.
func RefuseBy(e Endpoint, refuse func(address string) string) Endpoint {
	e.refuse = refuse
	return e
}

// Functions under test.
var (
	Sign       = sign
	Backoff    = backoff
	RetryAfter = retryAfter
	Excerpt    = excerpt
	Concealer  = concealer
)

// Longest is the longest wait between attempts.
const Longest = longest

// FirstWait is the wait after the first attempt.
const FirstWait time.Duration = firstWait
