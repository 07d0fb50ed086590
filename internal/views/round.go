package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/turnlog"
)

// A Round is an answered model call with the tool calls it asked for.
type Round struct {
	Round        int       `json:"round"`
	Charged      bool      `json:"charged"`
	Provider     string    `json:"provider"`
	Model        string    `json:"model"`
	Attempts     int       `json:"attempts"`
	LatencyMs    int64     `json:"latency_ms"`
	FinishReason string    `json:"finish_reason"`
	Usage        Usage     `json:"usage"`
	Text         string    `json:"text"`
	Reasoning    string    `json:"reasoning"`
	EndedAt      time.Time `json:"ended_at"`
	ToolCalls    []Call    `json:"tool_calls"`

	Request *Request `json:"request" doc:"null: it was not recorded"`
}

// OfRound returns the view of a round.
func OfRound(r turnkeeper.Round) Round {
	return Round{
		Round: r.Number, Charged: r.Charged, Provider: r.Provider, Model: r.Model, Attempts: r.Attempts,
		LatencyMs: Millis(r.Latency), FinishReason: r.FinishReason, Usage: OfUsage(r.Usage), Text: r.Text,
		Reasoning: r.Reasoning, EndedAt: r.EndedAt, ToolCalls: All(r.Calls, OfCall),
		Request: OfRequest(r.Recipe),
	}
}

// A FailedAttempt is a model call without an answer.
type FailedAttempt struct {
	Round      int       `json:"round" doc:"round of the attempt; the round may have no answer"`
	Attempt    int       `json:"attempt" doc:"number of the attempt in its round; 0: a side call, such as a summary"`
	Provider   string    `json:"provider"`
	Model      string    `json:"model"`
	ErrorClass string    `json:"error_class"`
	Error      string    `json:"error"`
	Text       string    `json:"text" doc:"text streamed before the failure; a long text is cut in the middle"`
	Reasoning  string    `json:"reasoning"`
	LatencyMs  int64     `json:"latency_ms"`
	Usage      Usage     `json:"usage"` // estimated where the provider did not report it
	EndedAt    time.Time `json:"ended_at"`
}

// OfFailedAttempt returns the view of a model call without an answer.
func OfFailedAttempt(f turnlog.FailedAttempt) FailedAttempt {
	return FailedAttempt{
		f.Round, f.Attempt, f.Provider, f.Model, f.Class, f.Error, f.Text, f.Reasoning, Millis(f.Latency),
		OfUsage(f.Usage), f.EndedAt,
	}
}

// A Call is a tool call.
type Call struct {
	ID         string               `json:"id" doc:"round-R-tool-I"`
	WireID     string               `json:"tool_call_id"`
	ProviderID string               `json:"provider_tool_call_id"`
	Name       string               `json:"name"`
	Arguments  string               `json:"arguments" doc:"as run: a person may have changed them, and handles are replaced by their texts; as planned if it has not started"`
	Planned    *string              `json:"planned_arguments" doc:"as the model planned them; null: it ran with these, or has not started"`
	RawArgs    string               `json:"raw_arguments"`
	Effect     turnkeeper.Effect    `json:"effect"`
	State      turnkeeper.CallState `json:"state"`
	Paging     bool                 `json:"paging"`
	Background bool                 `json:"background" doc:"the call ran while the turn continued"`
	Detached   bool                 `json:"detached" doc:"the call ran in a separate job"`
	Starts     int                  `json:"starts"`
	StartedAt  *time.Time           `json:"started_at"`
	EndedAt    *time.Time           `json:"ended_at"`
	DurationMs int64                `json:"duration_ms"`
	Preview    string               `json:"preview"`
	Shown      string               `json:"result"`
	OutputID   *turnkeeper.OutputID `json:"output_id"`
	LateResult string               `json:"late_result"`
	Usage      *Usage               `json:"usage" doc:"usage of model calls made for this call; null: none"`
}

// OfCall returns the view of a tool call.
func OfCall(c turnkeeper.ToolCall) Call {
	v := Call{
		ID: c.Key.String(), WireID: c.WireID, ProviderID: c.ProviderID, Name: c.Name, Arguments: c.AsRun(),
		RawArgs: c.RawArgs,
		Effect:  c.Effect, State: c.State, Paging: c.Paging,
		Background: prompt.WentOn(c), Detached: c.Awaited, Starts: c.Starts, StartedAt: OrNull(c.StartedAt),
		EndedAt:    OrNull(c.EndedAt),
		DurationMs: Millis(c.Duration), Preview: c.Preview, Shown: c.Shown, OutputID: OrNull(c.OutputID),
		LateResult: c.LateResult,
	}
	if c.RunArgs != "" {
		v.Planned = &c.Arguments
	}
	if c.Usage != (turnkeeper.Usage{}) {
		usage := OfUsage(c.Usage)
		v.Usage = &usage
	}
	return v
}

// An Output is a stored result, without its content.
type Output struct {
	ID         turnkeeper.OutputID `json:"id"`
	Call       string              `json:"tool_call" doc:"round-R-tool-I"`
	MediaType  string              `json:"media_type"`
	SizeBytes  int64               `json:"size_bytes"`
	Chars      int64               `json:"chars"`
	Tokens     int64               `json:"tokens"`
	SHA256     string              `json:"sha256"`
	Incomplete bool                `json:"incomplete"`
	Retrieved  int64               `json:"retrieved"`
	ExpiredAt  *time.Time          `json:"expired_at" doc:"when retention deleted the content; null: it is stored"`
}

// OfOutput returns the view of a stored result.
func OfOutput(o turnkeeper.Output) Output {
	return Output{o.ID, o.Call.String(), o.MediaType, o.SizeBytes, o.Chars, o.Tokens, o.SHA256, o.Incomplete,
		o.Retrieved, OrNull(o.ExpiredAt)}
}
