package agentdef

import (
	"strings"
	"unicode/utf8"

	"turnkeeper/internal/config/strictyaml"
)

// Values of on_degraded and on_failed that are not the text of a reply.
const (
	ReplySummary = "summary" // on_degraded only, and its default
	ReplySilent  = "silent"
)

const maxFixedReply = 2000 // characters

// Replies says how an agent's turns reply that gave no answer of their own.
type Replies struct {
	OnDegraded    string // ReplySilent, or a text; empty: the summary
	OnFailed      string // ReplySilent, or a text; empty: a plain sentence
	SummaryOutput bool   // a summary holds what the tools returned
}

func (r *reader) onDegraded(name string, v *strictyaml.Node) {
	r.def.Replies.OnDegraded = r.fixedReply(name, v)
	if r.def.Replies.OnDegraded == ReplySummary {
		r.def.Replies.OnDegraded = ""
	}
}

func (r *reader) onFailed(name string, v *strictyaml.Node) {
	r.def.Replies.OnFailed = r.fixedReply(name, v)
	if r.def.Replies.OnFailed == ReplySummary {
		r.Add(v.Line, "%s is %q, which only on_degraded knows: write the text of the reply, or %s", name, ReplySummary, ReplySilent)
	}
}

func (r *reader) fixedReply(name string, v *strictyaml.Node) string {
	text := r.text(name, v)
	if v.Kind == strictyaml.Text && (strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > maxFixedReply || strings.ContainsRune(text, 0)) {
		r.Add(v.Line, "%s must be a text of 1 to %d characters, or %s", name, maxFixedReply, ReplySilent)
	}
	return text
}

func (r *reader) summaryOutput(name string, v *strictyaml.Node) {
	value, err := v.AsBool()
	if err != nil {
		r.Add(v.Line, "%s %v", name, err)
	}
	r.def.Replies.SummaryOutput = value
}
