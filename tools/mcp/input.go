package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/tools"
)

// Input: a server of protocol 2026-07-28 asks for input in the result of a call,
// and gets it in another request of the same call. In between nothing is held:
// that request returns the server's opaque state. With older protocols a server
// waits for the input inside its call, which cannot last for days or survive a
// restart.

// The actions of an answer to a form.
const (
	actionAccept  = "accept"
	actionDecline = "decline" // a person has said no
	actionCancel  = "cancel"  // nobody has answered
)

// Limits of a server's request for input.
const (
	maxQuestion    = 2000      // bytes of the message of one form
	maxInputSchema = 64 << 10  // bytes of the schema of all forms of a result
	maxInputState  = 256 << 10 // bytes of the state that is stored
)

// A form is a request for input that a person fills in.
type form struct {
	message string
	schema  map[string]any // JSON Schema of an object
}

// formOf returns the form of a request, or the reason why no person is asked.
func (s Server) formOf(p *sdk.ElicitParams) (f form, fault string) {
	if p.Mode != "" && p.Mode != "form" || p.URL != "" {
		return form{}, "only forms are put to a person, no addresses"
	}
	schema := map[string]any{"type": "object"}
	if p.RequestedSchema != nil {
		text, err := json.Marshal(p.RequestedSchema)
		if err != nil {
			return form{}, "its schema cannot be read"
		}
		schema = nil
		if jsonlimit.ToolSchema.Exact(text, &schema) != nil || schema == nil {
			return form{}, "its schema is no object"
		}
		if _, err := tools.CompileSchema(text); err != nil {
			return form{}, "its schema cannot be used: " + s.bounded(err.Error(), maxSaid)
		}
	}
	return form{message: s.bounded(p.Message, maxQuestion), schema: schema}, ""
}

// A waiting holds what a call needs to continue. It is stored with the ask.
type waiting struct {
	State     string               `json:"state,omitempty"`     // the server's
	Responses sdk.InputResponseMap `json:"responses,omitempty"` // given without a person
	Forms     []string             `json:"forms"`               // ids of the requests that a person answers
	Samplings int                  `json:"samplings,omitempty"` // that the call may still make
	Tokens    int64                `json:"tokens,omitempty"`    // that they may still use
}

// inputRequest returns the request for the input of a person. The answer to one
// form is the form's content. To several it is an object with one property for
// each form, by the id of its request.
func (s *session) inputRequest(state string, given sdk.InputResponseMap, forms map[string]form, asker *sampler) error {
	w := waiting{State: state, Responses: given, Forms: slices.Sorted(maps.Keys(forms))}
	if asker != nil {
		w.Samplings, w.Tokens = asker.left()
	}
	request := &tools.InputRequest{}
	schema := forms[w.Forms[0]].schema
	question := forms[w.Forms[0]].message
	if len(w.Forms) > 1 {
		properties, questions := map[string]any{}, []string{}
		for _, id := range w.Forms {
			own := maps.Clone(forms[id].schema)
			if _, described := own["description"]; !described {
				own["description"] = forms[id].message
			}
			properties[id] = own
			questions = append(questions, s.server.bounded(id, maxNote)+": "+forms[id].message)
		}
		schema = map[string]any{"type": "object", "properties": properties, "required": w.Forms,
			"additionalProperties": false}
		question = s.server.bounded(strings.Join(questions, "; "), 2*maxQuestion)
	}
	request.Question = fmt.Sprintf("the MCP server %s asks: %s", s.server.Name, question)
	var failed [2]error
	var text []byte
	request.Schema, failed[0] = json.Marshal(schema)
	text, failed[1] = json.Marshal(w)
	request.State = string(text)
	switch _, err := tools.CompileSchema(request.Schema); {
	case errors.Join(failed[:]...) != nil:
		return fmt.Errorf("the server's request for input cannot be stored: %w", errors.Join(failed[:]...))
	case err != nil:
		return fmt.Errorf("the schemas of the server's requests for input cannot be used: %w", err)
	case len(request.Schema) > maxInputSchema:
		return fmt.Errorf("the server asked for input with a schema of more than %d bytes", maxInputSchema)
	case len(text) > maxInputState:
		return fmt.Errorf("the server asked for input with a state of more than %d bytes", maxInputState)
	}
	return request
}

// left returns the number of requests and tokens that a call may still use.
func (a *sampler) left() (calls int, tokens int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls, a.tokens
}

// A resumption is the part of a request that continues a call with input.
type resumption struct {
	state     string
	responses sdk.InputResponseMap
}

// resume returns the resumption of a call, or nil for its first request. asker, if not
// nil, gets the limits that the call has left.
func (t *tool) resume(input *tools.Input, asker *sampler) (*resumption, error) {
	if input == nil {
		return nil, nil //nolint:nilnil // it begins
	}
	var w waiting
	if err := jsonlimit.State.Exact([]byte(input.State), &w); err != nil {
		return nil, fmt.Errorf("the stored state of the call cannot be read: %w", err)
	}
	if asker != nil {
		asker.calls, asker.tokens = min(asker.calls, w.Samplings), min(asker.tokens, w.Tokens)
	}
	responses := sdk.InputResponseMap{}
	maps.Copy(responses, w.Responses)
	var content map[string]any
	if input.Answer != nil {
		if err := jsonlimit.Answer.Exact(input.Answer, &content); err != nil {
			return nil, fmt.Errorf("the answer of the person cannot be read: %w", err)
		}
	}
	for _, id := range w.Forms {
		switch own, ofSeveral := content[id].(map[string]any); {
		case input.Answer != nil && len(w.Forms) == 1:
			responses[id] = &sdk.ElicitResult{Action: actionAccept, Content: content}
		case input.Answer != nil && ofSeveral:
			responses[id] = &sdk.ElicitResult{Action: actionAccept, Content: own}
		case input.Denied:
			responses[id] = &sdk.ElicitResult{Action: actionDecline}
		default:
			responses[id] = &sdk.ElicitResult{Action: actionCancel}
		}
	}
	return &resumption{w.State, responses}, nil
}

// into adds the resumption to the request of a call.
func (r *resumption) into(p *sdk.CallToolParams) {
	if r != nil {
		p.InputResponses, p.RequestState = r.responses, r.state
	}
}

// whyDeclined describes why a request inside a call is declined.
func (s *session) whyDeclined() string {
	if s.server.AskForInput {
		return "asked for input within a call, which was declined: only a server of protocol 2026-07-28 can wait for a person"
	}
	return "asked for input, which was declined"
}
