package calls

import (
	"iter"
	"slices"

	"turnkeeper"
)

// Repeated returns the call that a call repeats: the one directly before it, which succeeded or still runs, and would
// run with the same arguments. nil: it repeats none. before are the turn's earlier calls, the last first. A call with
// handles is compared once they are resolved. Paging calls are ignored.
func (c *Call) Repeated(before iter.Seq[*turnkeeper.ToolCall]) *turnkeeper.ToolCall {
	if c.Paging || c.Starts > 0 || !c.Known() || !c.Spec.Guarded() || c.Handles && !c.resolved {
		return nil
	}
	hash := c.ArgsHash
	if _, asRun := c.AsRun(); asRun != "" {
		hash = asRun
	}
	for earlier := range before {
		switch {
		case earlier.Paging:
		case earlier.ArgsHash != hash:
			return nil
		case earlier.State == turnkeeper.CallSucceeded, earlier.State == turnkeeper.CallRunning:
			return earlier
		case earlier.State != turnkeeper.CallSkipped: // a skipped call may itself repeat an earlier one
			return nil
		}
	}
	return nil
}

// MayRepeat reports whether the call equals the one directly before it in its answer and both are still to run. Whether
// it runs then depends on how the first one ends. before are the calls before it in its answer.
func (c *Call) MayRepeat(before []turnkeeper.ToolCall) bool {
	if c.Paging || c.State != turnkeeper.CallPlanned || !c.Known() || !c.Spec.Guarded() {
		return false
	}
	for _, earlier := range slices.Backward(before) {
		if !earlier.Paging {
			return earlier.ArgsHash == c.ArgsHash && earlier.State == turnkeeper.CallPlanned
		}
	}
	return false
}

// RepeatedResult returns the result of a call that repeats another.
func RepeatedResult(first turnkeeper.ToolCall) string {
	return first.Shown + "\n\n[This is the result of " + first.Key.String() +
		" again: the same call was made directly before, and was not run a second time. Use the result, or change the arguments.]"
}
