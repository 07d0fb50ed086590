package webhooks

import "time"

// RefuseBy replaces the rule by which addresses are refused.
func RefuseBy(e Endpoint, refuse func(address string) string) Endpoint {
	e.refuse = refuse
	return e
}

// What is computed.
var (
	Sign       = sign
	Backoff    = backoff
	RetryAfter = retryAfter
	Excerpt    = excerpt
)

// Longest is the longest wait.
const Longest = longest

// FirstWait is the wait after the first attempt.
const FirstWait time.Duration = firstWait
