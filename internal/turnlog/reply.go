package turnlog

import (
	"regexp"

	"turnkeeper"
)

// refusal finds why a call was refused in its result. The rest of the text may hold what the model wrote. The SQL function
// call_problem has the same rule.
var refusal = regexp.MustCompile(`^(?:denied: )?(tool not found|invalid arguments|not enough time left in this turn|over the limit` +
	`|tools could not be called in the last round of this turn|the answer was cut off before all of its tool calls were complete` +
	`|the tool calls of this answer did not arrive whole|a person did not approve this call|nobody approved this call in time` +
	`|a person changed the arguments of this call, but they are invalid|a person allowed this call)`)

const (
	problemRefused = "refused"
	problemUnknown = "tool not found"
	unknownTool    = "(unknown tool)" // as the name of a call: the model may have written anything there
)

// ReplyCalls returns the calls of a turn for its reply. They hold nothing that the model or a tool wrote, because whoever may
// read the reply may read them, also if its text was withheld.
func ReplyCalls(rounds []turnkeeper.Round) []turnkeeper.ReplyCall {
	calls := []turnkeeper.ReplyCall{}
	for _, round := range rounds {
		for _, c := range round.Calls {
			r := turnkeeper.ReplyCall{
				Key: c.Key, Ordinal: len(calls) + 1, Name: c.Name, Effect: c.Effect, State: c.State, Duration: c.Duration, Problem: c.Problem(),
			}
			if c.State == turnkeeper.CallDenied {
				r.Problem = problemRefused
				if found := refusal.FindStringSubmatch(c.Shown); found != nil {
					r.Problem = found[1]
				}
			}
			if r.Problem == problemUnknown {
				r.Name = unknownTool
			}
			if c.Duration <= 0 && c.State != turnkeeper.CallSucceeded && c.State != turnkeeper.CallFailed {
				r.Duration = -1
			}
			calls = append(calls, r)
		}
	}
	return calls
}
