package turnlog

import (
	"turnkeeper"
)

// ReplyCalls returns the calls of a turn for its reply.
func ReplyCalls(rounds []turnkeeper.Round) []turnkeeper.ReplyCall {
	calls := []turnkeeper.ReplyCall{}
	for _, round := range rounds {
		for _, c := range round.Calls {
			r := turnkeeper.ReplyCall{
				Key: c.Key, Ordinal: len(calls) + 1, Name: c.Name, Effect: c.Effect, State: c.State, Duration: c.Duration, Problem: c.Problem(),
			}
			if c.Duration <= 0 && c.State != turnkeeper.CallSucceeded && c.State != turnkeeper.CallFailed {
				r.Duration = -1
			}
			calls = append(calls, r)
		}
	}
	return calls
}
