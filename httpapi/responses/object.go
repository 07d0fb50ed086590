package responses

import (
	"cmp"
	"strconv"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// Statuses of a response.
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete" // the reply is degraded
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// A Response is a response in OpenAI's format, with the field turnkeeper added.
type Response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object" schema:"const=response"`
	CreatedAt         int64              `json:"created_at"`
	CompletedAt       *int64             `json:"completed_at"`
	Status            string             `json:"status" schema:"enum=queued|in_progress|completed|incomplete|failed|cancelled" doc:"incomplete: the reply is degraded"`
	Background        bool               `json:"background"`
	Error             *failure           `json:"error"`
	IncompleteDetails *incompleteDetails `json:"incomplete_details"`
	Instructions      *string            `json:"instructions" schema:"type=null"`
	MaxOutputTokens   *int64             `json:"max_output_tokens" schema:"type=null"`
	MaxToolCalls      *int64             `json:"max_tool_calls" schema:"type=null"`
	Model             string             `json:"model"`
	Output            []item             `json:"output"`
	ParallelToolCalls bool               `json:"parallel_tool_calls"`
	PreviousID        *string            `json:"previous_response_id"`
	Conversation      named              `json:"conversation"`
	User              *string            `json:"user"`
	Store             bool               `json:"store" schema:"const=true"`
	Temperature       *float64           `json:"temperature" schema:"type=null"`
	Text              textFormat         `json:"text" schema:"type=object"`
	ToolChoice        string             `json:"tool_choice"`
	Tools             []struct{}         `json:"tools" schema:"maxItems=0"`
	TopP              *float64           `json:"top_p" schema:"type=null"`
	Truncation        string             `json:"truncation"`
	Usage             *usage             `json:"usage"`
	Metadata          map[string]string  `json:"metadata" schema:"maxProperties=16"`
	Turnkeeper        *own               `json:"turnkeeper,omitempty"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message" doc:"the reply"`
}

type incompleteDetails struct {
	Reason string `json:"reason" doc:"the turn's continuation_stop_reason"`
}

type named struct {
	ID string `json:"id"`
}

type textFormat struct {
	Format struct {
		Type string `json:"type"`
	} `json:"format"`
}

type usage struct {
	InputTokens  int64 `json:"input_tokens"`
	InputDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens  int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int64 `json:"total_tokens"`
}

// own is the turn of a response in Turnkeeper's terms.
type own struct {
	MessageID  turnkeeper.MessageID   `json:"message_id"`
	TurnID     turnkeeper.TurnID      `json:"turn_id"`
	Outcome    turnkeeper.TurnState   `json:"outcome" schema:"ref=TurnOutcome"`
	StopReason *turnkeeper.StopReason `json:"continuation_stop_reason"`
	ErrorClass string                 `json:"error_class"`
	Calls      []views.ReplyCall      `json:"calls"`
	Labels     []string               `json:"labels"`
}

// An item is a message: the reply in an output, or the sent message in a list of inputs.
type item struct {
	ID      string `json:"id"`
	Type    string `json:"type" schema:"const=message"`
	Role    string `json:"role" schema:"enum=assistant|user"`
	Status  string `json:"status"`
	Content []part `json:"content"`
}

type part struct {
	Type        string     `json:"type" schema:"enum=output_text|input_text"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations,omitzero"`
	Logprobs    []struct{} `json:"logprobs,omitzero"`
}

const idPrefix = "resp_"

func idOf(id turnkeeper.MessageID) string { return idPrefix + strconv.FormatInt(int64(id), 10) }

// messageOf returns the message id in a response's id.
func messageOf(id string) (turnkeeper.MessageID, bool) {
	digits, ok := strings.CutPrefix(id, idPrefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return turnkeeper.MessageID(n), ok && err == nil && n > 0 && idOf(turnkeeper.MessageID(n)) == id
}

func statusOf(r operate.Response) string {
	switch r.Outcome {
	case turnkeeper.TurnSucceeded:
		return statusCompleted
	case turnkeeper.TurnDegraded:
		return statusIncomplete
	case turnkeeper.TurnFailed:
		return statusFailed
	case turnkeeper.TurnCancelled:
		return statusCancelled
	default:
	}
	if r.Message.Attempts == 0 {
		return statusQueued
	}
	return statusInProgress // also between attempts
}

// viewOf returns a response in its current state.
func viewOf(r operate.Response) Response {
	view := openView(r, statusOf(r))
	if r.Outcome == "" {
		return view
	}
	view.CompletedAt = new(r.Message.ClosedAt.Unix())
	view.Usage = usageOf(r.Usage)
	view.Turnkeeper = &own{r.Message.ID, r.Message.TurnID, r.Outcome, orNull(r.StopReason), r.ErrorClass, views.OfReplyCalls(r.Calls), append([]string{}, r.Labels...)}
	switch view.Status {
	case statusCompleted, statusIncomplete:
		view.Output = []item{outputOf(r, statusOf(r), text(r.Reply))}
	case statusFailed:
		view.Error = &failure{"server_error", cmp.Or(r.Reply, "This message could not be answered.")} // an error needs a text, also if the agent is silent
	}
	if view.Status == statusIncomplete {
		view.IncompleteDetails = &incompleteDetails{string(r.StopReason)}
	}
	return view
}

// openView returns a response without a result, with the given status.
func openView(r operate.Response, status string) Response {
	m := r.Message
	view := Response{
		ID: idOf(m.ID), Object: "response", CreatedAt: m.AcceptedAt.Unix(), Status: status, Background: r.Background, Model: m.Agent,
		Output: []item{}, ParallelToolCalls: true, Conversation: named{m.Conversation}, User: orNull(m.User), Store: true, ToolChoice: "auto",
		Tools: []struct{}{}, Truncation: "disabled", Metadata: r.Metadata,
	}
	view.Text.Format.Type = "text"
	if r.Previous != 0 {
		view.PreviousID = new(idOf(r.Previous))
	}
	return view
}

func outputOf(r operate.Response, status string, content ...part) item {
	return item{"msg_" + strconv.FormatInt(int64(r.Message.ID), 10), "message", "assistant", status, append([]part{}, content...)}
}

func text(s string) part { return part{"output_text", s, []struct{}{}, []struct{}{}} }

// inputOf returns the sent message.
func inputOf(r operate.Response) item {
	return item{"msg_in_" + strconv.FormatInt(int64(r.Message.ID), 10), "message", "user", statusCompleted, []part{{Type: "input_text", Text: r.Message.Body}}}
}

func usageOf(u turnkeeper.Usage) *usage {
	v := &usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.Total()}
	v.InputDetails.Cached, v.OutputDetails.Reasoning = u.CachedTokens, u.ReasoningTokens
	return v
}
