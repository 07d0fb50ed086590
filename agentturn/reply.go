package agentturn

import (
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
)

// A reply is the reply of a turn to its message.
type reply struct {
	text   string
	said   int  // number of the round that the text is from; 0: not the model's text
	silent bool // the outbox row has no text
	notice bool // a scheduled turn sends it too
}

// fixedReply returns a function that returns text as the reply.
func fixedReply(text string) func([]turnkeeper.Round) reply {
	return func([]turnkeeper.Round) reply { return reply{text: text} }
}

// finalAnswer returns the model's answer and its round: the last text that no executed call
// follows. Text beside calls counts only in the announced last round. An answer does not count
// if the model had not yet seen how an effect ended. round is 0 if there is no answer.
func finalAnswer(rounds []turnkeeper.Round) (text string, round int) {
	if len(unreportedEffects(rounds)) > 0 {
		return "", 0
	}
	for _, r := range slices.Backward(rounds) {
		if slices.ContainsFunc(r.Calls, hasRun) {
			return "", 0
		}
		if !inference.Blank(r.Text) && (len(r.Calls) == 0 || wasFinal(r)) {
			return r.Text, r.Number
		}
	}
	return "", 0
}

// hasRun reports whether a call has run or may have run.
func hasRun(c turnkeeper.ToolCall) bool {
	return c.State.Executed() && (c.State != turnkeeper.CallCancelled || c.Shown != prompt.ShownNotRun)
}

// announcedLast reports whether a round was announced as the last one and asked for calls anyway.
func announcedLast(r turnkeeper.Round) bool {
	return len(r.Calls) > 0 && !slices.ContainsFunc(r.Calls, func(c turnkeeper.ToolCall) bool {
		return c.State != turnkeeper.CallDenied || c.Shown != shownFinal
	})
}

// wasFinal reports whether a round was announced as the last one.
func wasFinal(r turnkeeper.Round) bool { return r.Recipe != nil && r.Recipe.Final || announcedLast(r) }

// degradedReply returns the reply of a turn that could not end as asked: the model's answer,
// followed by the calls of unknown outcome, or what the agent's rules give instead.
func degradedReply(rounds []turnkeeper.Round, stop turnkeeper.StopReason, rules agentdef.Replies) reply {
	if text, said := finalAnswer(rounds); said != 0 {
		return reply{text: text + inDoubtLines(rounds), said: said}
	}
	switch rules.OnDegraded {
	case "":
		return reply{text: summaryReply(prompt.CallsOf(rounds), stop, rules.SummaryOutput)}
	case agentdef.ReplySilent:
		return reply{silent: true}
	default:
		return reply{text: rules.OnDegraded}
	}
}

// inDoubtLines returns lines that name the calls of unknown outcome, to be added to a text.
func inDoubtLines(rounds []turnkeeper.Round) string {
	var lines strings.Builder
	for _, call := range prompt.CallsOf(rounds) {
		if call.InDoubt() {
			if lines.Len() == 0 {
				lines.WriteString("\n")
			}
			lines.WriteString("\n" + summaryLine(call, false))
		}
	}
	return lines.String()
}

// summaryReply returns the Summary, or a plain sentence if no call has run or was skipped.
func summaryReply(calls []turnkeeper.ToolCall, stop turnkeeper.StopReason, output bool) string {
	if slices.ContainsFunc(calls, func(c turnkeeper.ToolCall) bool {
		return hasRun(c) || c.State == turnkeeper.CallSkipped
	}) {
		return Summary(calls, output)
	}
	return unanswered + withoutResult(stop)
}

// unanswered is the prefix of replies that replace an answer.
const unanswered = "This message could not be answered: "

// withoutResult says why a turn ended before any tool had run, and what to do.
func withoutResult(stop turnkeeper.StopReason) string {
	switch stop {
	case turnkeeper.StopMaxRounds:
		return "the agent came to no result in the steps that it may take; please ask for less at once."
	case turnkeeper.StopMaxDuration:
		return "the time for it was over before there was an answer; please send it again later."
	case turnkeeper.StopMaxToolCalls:
		return "the agent may make no more tool calls; the operator was told."
	case turnkeeper.StopBudget:
		return "the budget for it is used up; the operator was told."
	case turnkeeper.StopFinished:
		return "it was asked to finish before there was an answer."
	case turnkeeper.StopWorkerLost:
		return "the service stopped each time it worked on it; the operator was told."
	default:
		return "the agent came to no result; the operator was told."
	}
}

// failedReply returns the reply to a message after every attempt at it has failed.
func failedReply(class string, rules agentdef.Replies) reply {
	switch rules.OnFailed {
	case "":
		return reply{text: unanswered + failureText(class)}
	case agentdef.ReplySilent:
		return reply{silent: true}
	default:
		return reply{text: rules.OnFailed}
	}
}

// failureText says what went wrong and what to do. It reveals nothing about how the worker is set up.
func failureText(class string) string {
	switch inference.Class(class) {
	case inference.ClassRateLimited, inference.ClassOverloaded, inference.ClassTransport:
		return "the model could not be reached; please send it again later."
	case inference.ClassBadOutput:
		return "the model gave no usable answer; please send it again."
	case inference.ClassContextOverflow:
		return "the conversation is too long for the model; please begin a new one, or send less."
	case inference.ClassRefused:
		return "the model declined to answer; please change the message."
	case inference.ClassInvalid:
		return "the model does not take it as it is; the operator was told."
	case inference.ClassAuth, inference.ClassQuota, inference.ClassNotFound:
		return "the model is not available at present; the operator was told."
	}
	switch class {
	case string(turnkeeper.StopMaxDuration):
		return withoutResult(turnkeeper.StopMaxDuration)
	case classMessage:
		return "the model fails at it again and again, while it answers other messages; please change it, or begin a new conversation."
	case classBudget:
		return withoutResult(turnkeeper.StopBudget)
	}
	return "something went wrong inside the service; the operator was told."
}
