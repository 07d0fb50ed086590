// Package calls holds the calls of a turn as values, each with all that is known of it, and decides what is to be done
// with a call. It has no context, no I/O and no clock: agentturn does what it decides.
package calls

import (
	"encoding/json"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/asks"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A Call is a call of a turn. Its journaled state is that of the turn's rounds; the rest is known to this execution
// only.
type Call struct {
	*turnkeeper.ToolCall

	Tool    tools.Tool // nil: the agent does not have it
	Spec    tools.Spec
	Handles bool // its arguments may contain handles

	Gate   bool             // it may start only with an approval
	Ruling *policy.Decision // of the rules; nil: not asked for yet
	Asks   Asks             // about this call
	Doubt  string           // why its outcome is unknown; empty: it is known, or a worker was lost
	Labels []policy.Mark    // of its result

	Run *toolrun.Run // while it runs in the background
	Cut *turnlog.CallResult
	Sub *turnevents.SubAgentData // the sub-agent that has ended, for events

	args json.RawMessage // with which it runs; nil: as planned

	// What was found out for the step that is decided now; see Begin.
	resolved, rechecked, reconciled bool
	unresolvable                    string // why its handles cannot be resolved
	outdated                        string // why it may not start although a person allowed it
}

// Begin forgets what earlier steps have found out, because it may have changed.
func (c *Call) Begin() {
	c.args, c.resolved, c.unresolvable = nil, false, ""
	c.rechecked, c.outdated, c.reconciled = false, "", false
}

// Resolve sets the arguments with the texts of its handles.
func (c *Call) Resolve(args json.RawMessage) { c.args, c.unresolvable, c.resolved = args, "", true }

// Unresolvable sets why its handles cannot be resolved.
func (c *Call) Unresolvable(fault string) { c.args, c.unresolvable, c.resolved = nil, fault, true }

// IsResolved reports whether the arguments with which it runs are known.
func (c *Call) IsResolved() bool { return !c.Handles || c.resolved && c.unresolvable == "" }

// Recheck sets why the call may not start although a person allowed it. Empty: it may.
func (c *Call) Recheck(outdated string) { c.outdated, c.rechecked = outdated, true }

// Reconciled sets that the tool was asked whether the call happened, and could not tell.
func (c *Call) Reconciled() { c.reconciled = true }

// Known reports whether the agent has the call's tool.
func (c *Call) Known() bool { return c.Tool != nil }

// Args returns the arguments with which the call runs: as planned, or with the texts in place of its handles, or as a
// person changed them.
func (c *Call) Args() json.RawMessage {
	if c.args != nil {
		return c.args
	}
	return json.RawMessage(c.Arguments)
}

// Release forgets the arguments with which it ran. They are not stored: handles are resolved each time the call is run.
func (c *Call) Release() { c.args, c.resolved = nil, false }

// UseEdited sets the arguments that a person has written, if there are any.
func (c *Call) UseEdited() {
	if ask := c.Asks.Approval(); ask != nil && ask.Edited != "" {
		c.args = json.RawMessage(canonical(ask.Edited))
	}
}

// canonical returns the canonical text of arguments that a person changed, and that are valid.
func canonical(edited string) string {
	args, _ := arguments.Parse(edited)
	return args.Canonical()
}

// AsRun returns the arguments with which the call runs, and their hash, if they are not as planned. It shortens texts
// if there would be more than arguments.MaxBytes.
func (c *Call) AsRun() (args, hash string) {
	run := string(c.Args())
	if run == c.Arguments {
		return "", ""
	}
	return arguments.Shortened(run, c.Arguments), tools.Hash(c.Name, run)
}

// Approved returns the arguments with which the call would run now: the text of the person who changed them, else Args.
func (c *Call) Approved() string {
	if ask := c.Asks.Approval(); ask != nil && ask.Edited != "" {
		return ask.Edited
	}
	return string(c.Args())
}

// RunHash returns the hash of Approved.
func (c *Call) RunHash() string { return tools.Hash(c.Name, c.Approved()) }

// Start returns a start of the call, with the ask that allows it.
func (c *Call) Start(nonce string) turnlog.CallStart {
	start := turnlog.CallStart{Key: c.Key, Nonce: nonce, Attempt: c.Starts + 1, Effect: c.Effect}
	start.RunArgs, start.ArgsHash = c.AsRun()
	ask := c.Asks.Approval()
	if ask != nil || c.Gate {
		start.Hash = c.RunHash()
	}
	if ask != nil && start.Attempt == 1 {
		start.Ask = ask.ID
	}
	if ask := c.Settlement(); ask != nil {
		start.Ask, start.Hash = ask.ID, c.RunHash()
	}
	return start
}

// Settlement returns the ask about the newest start, or nil.
func (c *Call) Settlement() *asks.Ask { return c.Asks.Of(asks.KindSettle, c.Starts) }

// AwaitsInput reports whether the call waits for input, or has not continued with it yet.
func (c *Call) AwaitsInput() bool {
	ask := c.Asks.Input()
	return ask != nil && !ask.Used && c.State == turnkeeper.CallStarted
}

// InputForRun returns the input for the next run, or nil.
func (c *Call) InputForRun() *tools.Input {
	ask := c.Asks.Input()
	if ask == nil || !ask.Closed() {
		return nil
	}
	answer, _ := inputAnswer(ask)
	return &tools.Input{N: ask.N, State: ask.Resume, Answer: answer, Denied: ask.State == asks.Denied}
}

// Question returns the nth question of a kind about the call, with the rule and the reason of d.
func (c *Call) Question(kind asks.Kind, n int, d policy.Decision) asks.Question {
	q := asks.Question{Call: c.Key, Kind: kind, N: n, Tool: c.Name, Arguments: c.Approved(), Rule: d.Rule,
		Reason: d.Reason}
	if c.Known() && kind == asks.KindApprove {
		q.Schema = string(c.Spec.Parameters)
	}
	return q
}

// Result returns the result of a call that has no output of its tool.
func (c *Call) Result(state turnkeeper.CallState, text string) turnlog.CallResult {
	return turnlog.CallResult{Key: c.Key, Nonce: c.Nonce, State: state, Shown: text, Preview: outputs.Preview(text)}
}

// KeepHandle returns a result, changed so that a background call keeps its handle as Shown. The text becomes the
// preview.
func (c *Call) KeepHandle(result turnlog.CallResult) turnlog.CallResult {
	if c.WentOn() {
		result.Preview, result.Shown = outputs.Preview(result.Shown), c.Shown
	}
	return result
}

// WentOn reports whether the model was answered with a handle while the call ran: see prompt.WentOn.
func (c *Call) WentOn() bool { return prompt.WentOn(*c.ToolCall) }

// Detached reports whether the call is detached and open: its result will arrive whether the turn runs or waits.
func (c *Call) Detached() bool { return isDetached(*c.ToolCall) }

func isDetached(call turnkeeper.ToolCall) bool {
	return call.Awaited && call.State == turnkeeper.CallRunning
}

// Spawns reports whether the call has sent its message to a sub-agent that has not replied.
func (c *Call) Spawns() bool { return c.Name == turnkeeper.ToolSpawnAgent && c.Detached() }

// AwaitsReply reports whether the model cannot be asked before the sub-agent of the call has replied, because the call
// has no handle.
func (c *Call) AwaitsReply() bool { return c.Spawns() && !c.WentOn() }

// Reads reports whether the call runs without a recorded start.
func (c *Call) Reads() bool { return c.Effect == turnkeeper.EffectNone && c.Starts == 0 }

// InDoubtIfStopped reports whether the outcome would be in doubt if the call were stopped. A sub-agent's effects are on
// record in its own turn.
func (c *Call) InDoubtIfStopped() bool { return c.Effect != turnkeeper.EffectNone && !c.Spawns() }

// Reconciles reports whether the tool can tell whether the call happened.
func (c *Call) Reconciles() bool {
	_, ok := c.Tool.(tools.Reconciler)
	return ok
}
