package agentdef

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Values of on_degraded and on_failed that are not the text of a reply.
const (
	replySummary = "summary" // the default of on_degraded, invalid for on_failed
	ReplySilent  = "silent"
)

const maxFixedReply = 2000 // characters

// Replies holds the replies of turns in which the model gave no answer.
type Replies struct {
	OnDegraded string `yaml:"on_degraded" check:"on_degraded"` // ReplySilent, or a text; empty: the summary
	// ReplySilent, or a text; empty: a sentence with the reason
	OnFailed      string `yaml:"on_failed" check:"on_failed"`
	SummaryOutput bool   `yaml:"summary_output"` // a summary shows the beginning of results
}

func checkOnDegraded(text string) string {
	if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > maxFixedReply {
		return fmt.Sprintf(" must be a text of 1 to %d characters, or %s", maxFixedReply, ReplySilent)
	}
	return ""
}

func checkOnFailed(text string) string {
	if text == replySummary {
		return fmt.Sprintf(" is %q, which only on_degraded accepts: write the text of the reply, or %s",
			replySummary, ReplySilent)
	}
	return checkOnDegraded(text)
}
