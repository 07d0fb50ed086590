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
	statusIncomplete = "incomplete" // a degraded reply: there is an answer, and not all that was asked
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// An object is a response as clients read it.
type object struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	CreatedAt         int64              `json:"created_at"`
	CompletedAt       *int64             `json:"completed_at"`
	Status            string             `json:"status"`
	Background        bool               `json:"background"`
	Error             *failure           `json:"error"`
	IncompleteDetails *incompleteDetails `json:"incomplete_details"`
	Instructions      *string            `json:"instructions"`
	MaxOutputTokens   *int64             `json:"max_output_tokens"`
	MaxToolCalls      *int64             `json:"max_tool_calls"`
	Model             string             `json:"model"`
	Output            []item             `json:"output"`
	ParallelToolCalls bool               `json:"parallel_tool_calls"`
	PreviousID        *string            `json:"previous_response_id"`
	Conversation      named              `json:"conversation"`
	Store             bool               `json:"store"`
	Temperature       *float64           `json:"temperature"`
	Text              textFormat         `json:"text"`
	ToolChoice        string             `json:"tool_choice"`
	Tools             []struct{}         `json:"tools"`
	TopP              *float64           `json:"top_p"`
	Truncation        string             `json:"truncation"`
	Usage             *usage             `json:"usage"`
	Metadata          map[string]string  `json:"metadata"`
	Turnkeeper        *own               `json:"turnkeeper,omitempty"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
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

// own is what a response is here.
type own struct {
	MessageID  turnkeeper.MessageID   `json:"message_id"`
	TurnID     turnkeeper.TurnID      `json:"turn_id"`
	Outcome    turnkeeper.TurnState   `json:"outcome"`
	StopReason *turnkeeper.StopReason `json:"continuation_stop_reason"`
	ErrorClass string                 `json:"error_class"`
	Calls      []views.ReplyCall      `json:"calls"`
}

// An item is a message: the reply in an output, what was sent in a list of the input.
type item struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Role    string `json:"role"`
	Status  string `json:"status"`
	Content []part `json:"content"`
}

type part struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations,omitzero"`
	Logprobs    []struct{} `json:"logprobs,omitzero"`
}

const idPrefix = "resp_"

func idOf(id turnkeeper.MessageID) string { return idPrefix + strconv.FormatInt(int64(id), 10) }

// messageOf is the message that an id names.
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
	return statusInProgress // also between two attempts
}

// viewOf is a response as it stands.
func viewOf(r operate.Response) object {
	view := openView(r, statusOf(r))
	if r.Outcome == "" {
		return view
	}
	view.CompletedAt = new(r.Message.ClosedAt.Unix())
	view.Usage = usageOf(r.Usage)
	view.Turnkeeper = &own{r.Message.ID, r.Message.TurnID, r.Outcome, orNull(r.StopReason), r.ErrorClass, views.OfReplyCalls(r.Calls)}
	switch view.Status {
	case statusCompleted, statusIncomplete:
		view.Output = []item{outputOf(r, statusOf(r), text(r.Reply))}
	case statusFailed:
		view.Error = &failure{"server_error", cmp.Or(r.Reply, "This message could not be answered.")} // silent: an error needs a text
	}
	if view.Status == statusIncomplete {
		view.IncompleteDetails = &incompleteDetails{string(r.StopReason)}
	}
	return view
}

// openView is a response that has no end yet, at a status.
func openView(r operate.Response, status string) object {
	m := r.Message
	view := object{
		ID: idOf(m.ID), Object: "response", CreatedAt: m.AcceptedAt.Unix(), Status: status, Background: r.Background, Model: m.Agent,
		Output: []item{}, ParallelToolCalls: true, Conversation: named{m.Conversation}, Store: true, ToolChoice: "auto",
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

// inputOf is the message that was sent.
func inputOf(r operate.Response) item {
	return item{"msg_in_" + strconv.FormatInt(int64(r.Message.ID), 10), "message", "user", statusCompleted, []part{{Type: "input_text", Text: r.Message.Body}}}
}

func usageOf(u turnkeeper.Usage) *usage {
	v := &usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.Total()}
	v.InputDetails.Cached, v.OutputDetails.Reasoning = u.CachedTokens, u.ReasoningTokens
	return v
}
