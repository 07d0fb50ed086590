package calls

import (
	"cmp"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
)

// WithNotes adds to a result what the model is told about approvals and input.
func (c *Call) WithNotes(result turnlog.CallResult) turnlog.CallResult {
	note := c.ApprovalNote()
	if input := c.inputNote(); input != "" {
		note = strings.TrimPrefix(note+"\n\n"+input, "\n\n")
	}
	switch {
	case note == "" || result.State == turnkeeper.CallDenied:
	case result.State == turnkeeper.CallRunning:
		result.Shown += "\n\n" + note
	case result.Ran && !c.WentOn():
		id := cmp.Or(result.OutputID, c.OutputID)
		if result.Output != nil {
			id = result.Output.ID
		}
		result.Shown = prompt.WithNote(result.Shown, outputs.Placeholder{ID: id, Tool: c.Name}, note)
	}
	return result
}

// ShownEdited is the end of the text about a call that ran with other arguments than planned, because a person changed
// them.
func ShownEdited(arguments string) string {
	return "\n\n[A person changed the arguments of this call before it ran. It ran with: " + arguments + "]"
}

// ApprovalNote returns the note to the model about the approval of the call; empty: none.
func (c *Call) ApprovalNote() string {
	ask := c.Asks.Approval()
	switch {
	case ask == nil || ask.State != asks.Approved:
		return ""
	case ask.Edited != "":
		return withComment(strings.TrimLeft(ShownEdited(canonical(ask.Edited)), "\n"), ask)
	case ask.Comment != "":
		return "[Comment of the person who approved this call: " + ask.Comment + "]"
	default:
		return ""
	}
}

// inputNote returns the note to the model about the newest input of the call.
func (c *Call) inputNote() string {
	ask := c.Asks.Input()
	switch {
	case ask == nil || !ask.Used:
		return ""
	case ask.State == asks.Denied:
		return withComment(
			"[denied: a person declined to give the input that this call asked for. The tool then returned the following.]", ask)
	case ask.State == asks.Answered && ask.Comment != "":
		return "[Comment of the person who gave the input of this call: " + ask.Comment + "]"
	case ask.State == asks.Answered:
		if _, fault := inputAnswer(ask); fault == "" {
			return ""
		}
	}
	return "[denied: nobody gave the input that this call asked for in time. The tool then returned the following.]"
}

// Unknown returns the verdict on a started call whose outcome is unknown. It names the arguments with which it ran, if
// a person changed them.
func (c *Call) Unknown() turnlog.CallResult {
	shown := prompt.ShownUnknown
	if ask := c.Asks.Approval(); ask != nil && ask.Edited != "" {
		shown += "\n\n" + c.ApprovalNote()
	}
	return c.KeepHandle(turnlog.CallResult{
		Key: c.Key, Nonce: c.Nonce, State: turnkeeper.CallUnknown, Shown: shown, Preview: outputs.Preview(shown),
		Ran: !c.Paging,
	})
}

// ShownMaybe ends the text about an effect that was stopped.
const ShownMaybe = ". It may or may not have happened."

// CutResult returns the result of a run that was stopped, which says of an effect that it may or may not have happened.
func (c *Call) CutResult() turnlog.CallResult {
	result := *c.Cut
	switch {
	case !result.Ran || c.Effect == turnkeeper.EffectNone:
	case c.WentOn():
		result.Preview = outputs.Preview(result.Preview + ShownMaybe)
	default:
		result.Shown += ShownMaybe
		result.Preview = outputs.Preview(result.Shown)
	}
	return result
}

// ShownRefused is the result of a call that a rule denies.
func ShownRefused(d policy.Decision) string {
	return "denied by a rule: " + cmp.Or(d.Reason, "this call is not allowed") + ". Nothing was run."
}

// shownNotApproved is the result of a call whose approval was not given.
func shownNotApproved(ask *asks.Ask) string {
	if ask.State != asks.Denied {
		return turnlog.Denied + turnlog.RefusedExpired + ". Nothing was run."
	}
	return withComment(turnlog.Denied+turnlog.RefusedByPerson+". Nothing was run.", ask)
}

// withComment adds the comment of the person who answered an ask to a text.
func withComment(text string, ask *asks.Ask) string {
	if ask.Comment == "" {
		return text
	}
	return fmt.Sprintf("%s\nComment: %s", text, ask.Comment)
}
