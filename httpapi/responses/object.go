package responses

import (
	"cmp"
	"strconv"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// Statuses of a response.
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete" // the reply is degraded, or cut
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// A Response is a response in OpenAI's format, with the field turnkeeper added.
type Response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object" schema:"const=response"`
	CreatedAt         int64              `json:"created_at"`
	CompletedAt       *int64             `json:"completed_at"`
	Status            string             `json:"status" schema:"enum=queued|in_progress|completed|incomplete|failed|cancelled" doc:"incomplete: the reply is degraded, or its end was cut"`
	Background        bool               `json:"background"`
	Error             *failure           `json:"error"`
	IncompleteDetails *incompleteDetails `json:"incomplete_details"`
	Instructions      *string            `json:"instructions"`
	MaxOutputTokens   *int               `json:"max_output_tokens"`
	MaxToolCalls      *int64             `json:"max_tool_calls" schema:"type=null"`
	Model             string             `json:"model"`
	Output            []item             `json:"output"`
	ParallelToolCalls bool               `json:"parallel_tool_calls"`
	PreviousID        *string            `json:"previous_response_id"`
	Conversation      named              `json:"conversation"`
	User              *string            `json:"user"`
	Store             bool               `json:"store" schema:"const=true"`
	ServiceTier       string             `json:"service_tier" schema:"const=default"`
	SafetyIdentifier  *string            `json:"safety_identifier" schema:"type=null"`
	PromptCacheKey    *string            `json:"prompt_cache_key" schema:"type=null"`
	Reasoning         reasoning          `json:"reasoning" schema:"type=object"`
	Temperature       float64            `json:"temperature" schema:"const=1" doc:"this and the other sampling parameters are the API's defaults: the agent's definition decides"`
	Text              textFormat         `json:"text" schema:"type=object"`
	ToolChoice        string             `json:"tool_choice"`
	Tools             []struct{}         `json:"tools" schema:"maxItems=0"`
	TopP              float64            `json:"top_p" schema:"const=1"`
	PresencePenalty   float64            `json:"presence_penalty" schema:"const=0"`
	FrequencyPenalty  float64            `json:"frequency_penalty" schema:"const=0"`
	TopLogprobs       int                `json:"top_logprobs" schema:"const=0"`
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
	Reason string `json:"reason" doc:"max_output_tokens or content_filter: the provider cut the answer; else the turn's continuation_stop_reason, or inference_error if the answer was broken off"`
}

type named struct {
	ID string `json:"id"`
}

type reasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
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
	Status  string `json:"status" schema:"enum=in_progress|completed|incomplete"`
	Phase   string `json:"phase,omitempty" schema:"enum=commentary|final_answer"`
	Content []part `json:"content"`
}

// Phases of the agent's messages.
const (
	phaseCommentary = "commentary"
	phaseFinal      = "final_answer"
)

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
		if incomplete(r) != "" {
			return statusIncomplete
		}
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

// Reasons for an incomplete response that OpenAI's API has.
const (
	reasonLimit    = "max_output_tokens"
	reasonFiltered = "content_filter"
)

// incomplete returns why the reply of a response is not the whole answer; empty: it is.
func incomplete(r operate.Response) string {
	finish, degraded := inference.FinishOf(r.Finish), r.Outcome == turnkeeper.TurnDegraded
	switch {
	case degraded && r.ErrorClass == string(inference.ClassRefused), !degraded && finish == inference.FinishFiltered:
		return reasonFiltered
	case degraded:
		return string(r.StopReason)
	case finish == inference.FinishCut && inference.ReachedLimit(r.Finish):
		return reasonLimit
	case finish == inference.FinishCut:
		return string(turnkeeper.StopInferenceError)
	default:
		return ""
	}
}

// viewOf returns a response in its current state.
func viewOf(r operate.Response) Response {
	view := openView(r, statusOf(r))
	if r.Outcome == "" {
		return view
	}
	view.CompletedAt = new(r.Message.ClosedAt.Unix())
	view.Usage = usageOf(r.Usage)
	view.Turnkeeper = &own{r.Message.ID, r.Message.TurnID, r.Outcome, orNull(r.StopReason), r.ErrorClass,
		views.OfReplyCalls(r.Calls), append([]string{}, r.Labels...)}
	switch view.Status {
	case statusCompleted, statusIncomplete:
		view.Output = []item{messageOfAgent(outputID(r.Message.ID), statusOf(r), phaseFinal, text(r.Reply))}
	case statusFailed:
		// an error needs a text, also if the agent is silent
		view.Error = &failure{"server_error", cmp.Or(r.Reply, "This message could not be answered.")}
	}
	if view.Status == statusIncomplete {
		view.IncompleteDetails = &incompleteDetails{incomplete(r)}
	}
	return view
}

// openView returns a response without a result, with the given status.
func openView(r operate.Response, status string) Response {
	m := r.Message
	view := Response{
		ID: idOf(m.ID), Object: "response", CreatedAt: m.AcceptedAt.Unix(), Status: status, Background: r.Background,
		Model:  m.Agent,
		Output: []item{}, ParallelToolCalls: true, Conversation: named{m.Conversation}, User: orNull(m.User),
		Store: true, ToolChoice: "auto",
		Tools: []struct{}{}, Truncation: "disabled", Metadata: r.Metadata, Instructions: r.Instructions,
		MaxOutputTokens: orNull(r.MaxOutputTokens),
		ServiceTier:     "default", Temperature: 1, TopP: 1,
	}
	view.Text.Format.Type = "text"
	if r.Previous != 0 {
		view.PreviousID = new(idOf(r.Previous))
	}
	return view
}

// Prefixes of the ids of items.
const (
	outputPrefix = "msg_"
	inputPrefix  = "msg_in_"
)

func outputID(id turnkeeper.MessageID) string { return outputPrefix + strconv.FormatInt(int64(id), 10) }

func text(s string) part { return part{"output_text", s, []struct{}{}, []struct{}{}} }

// inputOf returns the sent message, without its instructions and an imported history.
func inputOf(r operate.Response) item {
	id := inputPrefix + strconv.FormatInt(int64(r.Message.ID), 10)
	return item{ID: id, Type: "message", Role: "user", Status: statusCompleted,
		Content: []part{{Type: "input_text", Text: r.Sent()}}}
}

func usageOf(u turnkeeper.Usage) *usage {
	v := &usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.Total()}
	v.InputDetails.Cached, v.OutputDetails.Reasoning = u.CachedTokens, u.ReasoningTokens
	return v
}
