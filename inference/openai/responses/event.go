package responses

import (
	"encoding/json"
	"errors"
	"slices"

	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/internal/jsonlimit"
)

// An event is one of a stream: the members that are read of any.
type event struct {
	Type         loose.Text      `json:"type"`
	ItemID       loose.Text      `json:"item_id"`
	OutputIndex  *loose.Count    `json:"output_index"`
	ContentIndex loose.Count     `json:"content_index"`
	SummaryIndex loose.Count     `json:"summary_index"`
	Name         loose.Text      `json:"name"`
	Delta        json.RawMessage `json:"delta"`
	Text         json.RawMessage `json:"text"`
	Refusal      json.RawMessage `json:"refusal"`
	Arguments    json.RawMessage `json:"arguments"`
	Item         json.RawMessage `json:"item"`
	Response     json.RawMessage `json:"response"`
	Error        json.RawMessage `json:"error"`
}

// Types of events. Those with other types are skipped.
const (
	typeError      = "error"
	typeCompleted  = "response.completed"
	typeIncomplete = "response.incomplete"
	typeFailed     = "response.failed"
	typeDone       = "response.done" // of servers other than OpenAI's

	typeCreated       = "response.created"
	typeItemAdded     = "response.output_item.added"
	typeItemDone      = "response.output_item.done"
	typeText          = "response.output_text.delta"
	typeTextDone      = "response.output_text.done"
	typeRefusal       = "response.refusal.delta"
	typeThought       = "response.reasoning_text.delta"
	typeSummary       = "response.reasoning_summary_text.delta"
	typeArguments     = "response.function_call_arguments.delta"
	typeArgumentsDone = "response.function_call_arguments.done"
)

// readEvent decodes an event. named is its type in the stream's own line, if it has one. The error is a
// *jsonlimit.LimitError, or says that data is not an object.
func readEvent(named string, data []byte) (e event, err error) {
	if err := jsonlimit.ModelMessage.Check(data); err != nil {
		return event{}, err
	}
	err = json.Unmarshal(data, &e)
	if e.Type == "" {
		e.Type = loose.Text(named)
	}
	return e, err
}

func isLimit(err error) bool {
	_, beyond := errors.AsType[*jsonlimit.LimitError](err)
	return beyond
}

// isError reports whether an event says that the request has failed.
func (e event) isError() bool {
	return e.Type == typeError || e.Type == "response.error" || e.Type == "" && !loose.IsNull(e.Error)
}

// ends reports whether nothing that matters follows an event.
func (e event) ends() bool {
	return slices.Contains([]loose.Text{typeCompleted, typeIncomplete, typeFailed, typeDone, "response.cancelled"},
		e.Type)
}
