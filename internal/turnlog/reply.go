package turnlog

import (
	"strings"

	"turnkeeper"
)

// Why a call was refused. The result of a refused call begins with one of these texts, after Denied or alone, or with
// the reason of a rule. What follows may quote the model.
const (
	Denied = "denied: "

	RefusedUnknown   = "tool not found"
	RefusedArguments = "invalid arguments"
	RefusedNoTime    = "not enough time left in this turn"
	RefusedOverLimit = "over the limit"
	RefusedFinal     = "tools could not be called in the last round of this turn"
	RefusedFinish    = "the turn was asked to finish before this call was run"
	RefusedCut       = "the answer was cut off before all of its tool calls were complete"
	RefusedPieces    = "the tool calls of this answer did not arrive whole"
	RefusedByPerson  = "a person did not approve this call"
	RefusedExpired   = "nobody approved this call in time"
	RefusedEdit      = "a person changed the arguments of this call, but they are invalid"
	RefusedSince     = "a person allowed this call"
)

// Refusals lists the texts. The SQL function call_problem has the same list.
var Refusals = []string{
	RefusedUnknown, RefusedArguments, RefusedNoTime, RefusedOverLimit, RefusedFinal, RefusedFinish, RefusedCut,
	RefusedPieces, RefusedByPerson, RefusedExpired,
	RefusedEdit, RefusedSince,
}

// unknownTool replaces the name of a tool that does not exist: the model may have written anything there.
const unknownTool = "(unknown tool)"

// ReplyCalls returns the calls of a turn for its reply. They hold nothing that the model or a tool wrote, because
// everyone who may read the reply may read them, even if the text of the reply was withheld.
func ReplyCalls(rounds []turnkeeper.Round) []turnkeeper.ReplyCall {
	calls := []turnkeeper.ReplyCall{}
	for _, round := range rounds {
		for _, c := range round.Calls {
			r := turnkeeper.ReplyCall{
				Key: c.Key, Ordinal: len(calls) + 1, Name: c.Name, Effect: c.Effect, State: c.State,
				Duration: c.Duration, Problem: c.Problem(),
			}
			if c.State == turnkeeper.CallDenied {
				r.Problem = refusalIn(c.Shown)
			}
			if r.Problem == RefusedUnknown {
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

// refusalIn returns the text of Refusals with which the result of a refused call begins, or "refused".
func refusalIn(shown string) string {
	shown = strings.TrimPrefix(shown, Denied)
	for _, why := range Refusals {
		if strings.HasPrefix(shown, why) {
			return why
		}
	}
	return "refused"
}
