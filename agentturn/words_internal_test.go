package agentturn

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
)

// constantsIn returns the values of the constants of a type in a file.
func constantsIn(t *testing.T, file, kind string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\b\w+\s+`+kind+`\s+= "(\w+)"`).FindAllSubmatch(text, -1) {
		values = append(values, string(m[1]))
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants of type %s", file, kind)
	}
	return values
}

// TestWhatAReplyWithoutAnAnswerSays checks the words in place of an answer for each reason to stop before a tool has
// run, and that each of them tells of the calls that have run.
func TestWhatAReplyWithoutAnAnswerSays(t *testing.T) {
	const noResult = "the agent came to no result; the operator was told."
	words := map[turnkeeper.StopReason]string{
		turnkeeper.StopMaxRounds:      "the agent came to no result in the steps that it may take; please ask for less at once.",
		turnkeeper.StopMaxDuration:    "the time for it was over before there was an answer; please send it again later.",
		turnkeeper.StopMaxToolCalls:   "the agent may make no more tool calls; the operator was told.",
		turnkeeper.StopBudget:         "the budget for it is used up; the operator was told.",
		turnkeeper.StopFinished:       "it was asked to finish before there was an answer.",
		turnkeeper.StopWorkerLost:     "the service stopped each time it worked on it; the operator was told.",
		turnkeeper.StopInferenceError: noResult,
		turnkeeper.StopNone:           noResult,
		turnkeeper.StopCancelled:      noResult, // has a reply of its own
		turnkeeper.StopWithheld:       noResult, // likewise
	}
	ran := turnkeeper.ToolCall{Name: "look", State: turnkeeper.CallSucceeded}
	for _, value := range constantsIn(t, "../turn.go", "StopReason") {
		stop := turnkeeper.StopReason(value)
		for state, want := range map[turnkeeper.CallState]string{
			turnkeeper.CallDenied:    "This message could not be answered: " + words[stop],
			turnkeeper.CallSucceeded: "Tool results: 1 succeeded, 0 failed.\n- look: succeeded",
			turnkeeper.CallSkipped:   "Tool results: 0 succeeded, 0 failed, 1 skipped.\n- look: skipped",
		} {
			call := ran
			call.State, call.Shown = state, prompt.ShownNotRun
			got := degradedReply([]turnkeeper.Round{{Number: 1, Calls: []turnkeeper.ToolCall{call}}}, stop,
				agentdef.Replies{})
			if words[stop] == "" || got.said != 0 || got.silent || !strings.HasPrefix(got.text, want) {
				t.Errorf("%s, with a call that is %s: %+v, want %q", stop, state, got, want)
			}
		}
	}
}

// TestWhatAFailureSays checks the words in place of an answer for each class of error.
func TestWhatAFailureSays(t *testing.T) {
	const unreachable = "the model could not be reached; please send it again later."
	const unavailable = "the model is not available at present; the operator was told."
	words := map[string]string{
		string(inference.ClassRateLimited): unreachable,
		string(inference.ClassOverloaded):  unreachable,
		string(inference.ClassTransport):   unreachable,
		string(inference.ClassAuth):        unavailable,
		string(inference.ClassQuota):       unavailable,
		string(inference.ClassNotFound):    unavailable,
		string(inference.ClassBadOutput):   "the model gave no usable answer; please send it again.",
		string(
			inference.ClassContextOverflow): "the conversation is too long for the model; please begin a new one, or send less.",
		string(inference.ClassRefused): "the model declined to answer; please change the message.",
		string(inference.ClassInvalid): "the model does not take it as it is; the operator was told.",
		classInternal:                  "something went wrong inside the service; the operator was told.",
		classBudget:                    "the budget for it is used up; the operator was told.",
		classMessage: "the model fails at it again and again, while it answers other messages; " +
			"please change it, or begin a new conversation.",
		string(
			turnkeeper.StopMaxDuration): "the time for it was over before there was an answer; please send it again later.",
	}
	own := []string{classInternal, classBudget, classMessage, string(turnkeeper.StopMaxDuration)}
	for _, class := range append(constantsIn(t, "../inference/errors.go", "Class"), own...) {
		for rule, want := range map[string]reply{
			"":                   {text: "This message could not be answered: " + words[class]},
			agentdef.ReplySilent: {silent: true},
			"Call 555.":          {text: "Call 555."},
		} {
			if got := failedReply(class, agentdef.Replies{OnFailed: rule}); words[class] == "" || got != want {
				t.Errorf("%s, on_failed %q: %+v, want %+v", class, rule, got, want)
			}
		}
	}
}
