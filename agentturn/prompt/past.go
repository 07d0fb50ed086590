package prompt

import (
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
)

// toldHistory returns the record with only the part of the conversation that the turn's
// requests include. It depends on the record and the definition alone, so that a request can
// be rebuilt later.
func toldHistory(record turnkeeper.Record, d *agentdef.Definition) turnkeeper.Record {
	if record.Message.Trigger != turnkeeper.TriggerSchedule {
		return record
	}
	switch historyOf(d, record.Message.Schedule) {
	case agentdef.HistoryAll:
		return record
	case agentdef.HistoryLast:
		last := record.LastRun
		record.History = nil
		if last != nil {
			record.History = []turnkeeper.Past{runBefore(*last)}
		}
	case agentdef.HistoryNone:
		record.History = nil
	}
	record.Older, record.Summary = 0, turnkeeper.Summary{}
	return record
}

// historyOf is what the runs of a schedule are told. One that the definition does
// not have any more has the default.
func historyOf(d *agentdef.Definition, schedule string) agentdef.History {
	for _, s := range d.Schedules {
		if s.Name == schedule && s.History != "" {
			return s.History
		}
	}
	return agentdef.HistoryLast
}

// runBefore is a run of a schedule as the next one is told of it: its message, the
// calls that had an effect, and what it said in the end. What it read is left out:
// the next run reads for itself.
func runBefore(past turnkeeper.Past) turnkeeper.Past {
	var rounds []turnkeeper.Round
	for i, round := range past.Rounds {
		effects := slices.DeleteFunc(slices.Clone(round.Calls), func(c turnkeeper.ToolCall) bool { return !hadEffect(c) })
		last := i == len(past.Rounds)-1 && len(round.Calls) == 0
		if len(effects) == 0 && !last {
			continue
		}
		if len(effects) < len(round.Calls) {
			round.Raw = nil // it has all the calls
		}
		round.Calls = effects
		rounds = append(rounds, round)
	}
	past.Rounds = rounds
	return past
}

// hadEffect says that a call has changed something, or may have.
func hadEffect(c turnkeeper.ToolCall) bool {
	return c.Effect != turnkeeper.EffectNone && c.State.Executed()
}

// endOf is the last message of an earlier turn: what it said in the end, and what
// is to be said of a turn that was not answered. It is never empty, so that the
// messages of two turns do not stand side by side: some servers refuse that.
func endOf(past turnkeeper.Past, said inference.Message) inference.Message {
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

// statementOn says how a turn ended that was cancelled or failed; empty for any other.
func statementOn(past turnkeeper.Past) string {
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
	if slices.ContainsFunc(CallsOf(past.Rounds), hadEffect) {
		text += " What its calls did was not undone: their results say what that is. Do not do it again without need."
	}
	return "[" + text + "]"
}

// pastLine stands for a handle of an earlier turn, which is of no use any more, or
// for the result of a call that went to the background.
func pastLine(call turnkeeper.ToolCall) string {
	if call.State != turnkeeper.CallSucceeded {
		return fmt.Sprintf("[%s is %s: %s]", call.Name, call.State, call.Preview)
	}
	return fmt.Sprintf("[the output of %s was kept for its own turn; it began: %s]", call.Name, call.Preview)
}

// leanLine stands for a result of an earlier turn where there is little room. It
// keeps what became of a call that did not succeed.
func leanLine(call turnkeeper.ToolCall) string {
	if call.State != turnkeeper.CallSucceeded {
		return fmt.Sprintf("[%s is %s; its result is dropped to fit the context window]", call.Name, call.State)
	}
	return plainLine(call)
}
