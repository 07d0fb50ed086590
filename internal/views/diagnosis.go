package views

import (
	"time"

	"turnkeeper/internal/diagnosis"
)

// A Diagnosis is what doctor finds: failures first, then warnings, then passed checks.
type Diagnosis struct {
	At     time.Time `json:"checked_at"`
	Checks []Check   `json:"checks"`
}

// A Check is one finding of doctor.
type Check struct {
	Name    string            `json:"name"`
	Verdict diagnosis.Verdict `json:"verdict"`
	Found   string            `json:"found"`
	Advice  string            `json:"advice" doc:"what to do; empty: nothing"`
	Agent   string            `json:"agent" doc:"the agent it is about; empty: the installation"`
}

// OfDiagnosis returns the view of what doctor finds.
func OfDiagnosis(d diagnosis.Report) Diagnosis { return Diagnosis{d.At, All(d.Checks, ofCheck)} }

func ofCheck(c diagnosis.Check) Check {
	return Check{Name: c.Name, Verdict: c.Verdict, Found: c.Found, Advice: c.Advice, Agent: c.Agent}
}
