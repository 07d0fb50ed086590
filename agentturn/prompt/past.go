package prompt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// shownHistory returns the record with only the part of the conversation that the turn's
// requests include. It depends only on the record and the definition, so that a request can
// be rebuilt later.
func shownHistory(record *turnlog.Record, d *agentdef.Definition) *turnlog.Record {
	if record.Message.Trigger != turnkeeper.TriggerSchedule {
		return record
	}
	var history []turnlog.Past
	switch historyOf(d, record.Message.Schedule) {
	case agentdef.HistoryAll:
		return record
	case agentdef.HistoryLast:
		if last := record.LastRun; last != nil {
			history = []turnlog.Past{runBefore(*last)}
		}
	case agentdef.HistoryNone:
	}
	shown := *record
	shown.History, shown.Older, shown.Summary = history, 0, turnlog.Summary{}
	return &shown
}

// historyOf returns the history setting of a schedule, or the default if the definition no
// longer has that schedule.
func historyOf(d *agentdef.Definition, schedule string) agentdef.History {
	for _, s := range d.Schedules {
		if s.Name == schedule && s.History != "" {
			return s.History
		}
	}
	return agentdef.HistoryLast
}

// runBefore returns an earlier run of a schedule as the next run sees it: its message, the
// calls with an effect, and its final text. Reads are left out, because the next run makes
// its own.
func runBefore(past turnlog.Past) turnlog.Past {
	var rounds []turnkeeper.Round
	for i, round := range past.Rounds {
		effects := slices.DeleteFunc(slices.Clone(round.Calls), func(c turnkeeper.ToolCall) bool {
			return !hadEffect(c)
		})
		last := i == len(past.Rounds)-1 && len(round.Calls) == 0
		if len(effects) == 0 && !last {
			continue
		}
		if len(effects) < len(round.Calls) {
			round.Raw = nil // it contains all calls
		}
		round.Calls = effects
		rounds = append(rounds, round)
	}
	past.Rounds = rounds
	return past
}

// hadEffect reports whether a call may have changed something.
func hadEffect(c turnkeeper.ToolCall) bool {
	return c.Effect != turnkeeper.EffectNone && c.State.Executed()
}

// endOf returns the last message of an earlier turn: its final text, with a statement if the
// turn was not answered. It is never empty, because some servers refuse two adjacent
// messages of the user.
func endOf(past turnlog.Past, said inference.Message) inference.Message {
	statement := statementOn(past)
	switch {
	case statement == "" && strings.TrimSpace(said.Text) != "":
		return said
	case statement == "":
		statement = "[This turn ended without an answer.]"
	case strings.TrimSpace(said.Text) != "":
		statement = said.Text + "\n\n" + statement
	}
	return inference.Message{Role: inference.RoleAssistant, Text: statement}
}

// statementOn returns a sentence about the end of a cancelled or failed turn, and an empty
// text for other turns.
func statementOn(past turnlog.Past) string {
	var text string
	switch past.State {
	case turnkeeper.TurnCancelled:
		text = "This turn was cancelled before it was finished."
	case turnkeeper.TurnFailed:
		text = "This turn failed."
		switch {
		case !past.Silent:
			text += " " + past.Reply
		case past.ErrorClass != "":
			text += " The error was of the class " + past.ErrorClass + "."
		}
	default:
		return ""
	}
	for call := range eachCall(past.Rounds) {
		if WentOn(*call) && hadEffect(*call) { // its result still says that it runs
			text += fmt.Sprintf(" %s (id: %s): %s.", PlainName(call.Name), call.OutputID, outcomeOf(*call))
		}
	}
	if anyCall(past.Rounds, hadEffect) {
		text += " What its calls did was not undone: their results say what that is. Do not do it again without need."
	}
	return "[" + text + "]"
}

// outcomeOf returns how a call ended, without the tool's text.
func outcomeOf(call turnkeeper.ToolCall) string {
	if call.State == turnkeeper.CallCancelled || call.State == turnkeeper.CallUnknown {
		return strings.TrimSuffix(cmp.Or(call.Preview, call.Problem()), ".") // the program wrote the preview
	}
	return cmp.Or(call.Problem(), string(call.State))
}

// pastLine returns the line that replaces the handle of a call of a turn before the epoch. It names the output if the
// model can read it.
func pastLine(call turnkeeper.ToolCall, reads bool) string {
	switch {
	case call.State != turnkeeper.CallSucceeded:
		return fmt.Sprintf("[%s is %s: %s]", call.Name, call.State, call.Preview)
	case reads:
		return fmt.Sprintf("[the output of %s is stored: to read it call get_tool_output(%q, mode); it began: %s]", call.Name,
			call.OutputID, call.Preview)
	default:
		return fmt.Sprintf("[the output of %s is stored; it began: %s]", call.Name, call.Preview)
	}
}

// leanLine returns the line that replaces a result of an earlier turn if room is short. It
// includes the state of a call that did not succeed.
func leanLine(call turnkeeper.ToolCall) string {
	if call.State != turnkeeper.CallSucceeded {
		return fmt.Sprintf("[%s is %s; its result is dropped to fit the context window]", call.Name, call.State)
	}
	return plainLine(call)
}
