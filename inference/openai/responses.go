package openai

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/responsesbody"
	"turnkeeper/inference/openai/internal/wire"
)

// checkResponses returns an error if the Responses API cannot carry what a profile asks for.
func checkResponses(p Profile) error {
	for _, option := range []struct {
		set  bool
		name string
	}{
		{p.TokenField != "", "max_tokens_field"}, {p.NoStreamUsage, "stream_usage"},
		{p.EmptyContent != "", "empty_content"}, {p.Deployments, "a path by deployments"},
		{p.Reasoning == ReasoningRequire, "reasoning: require"},
	} {
		if option.set {
			return fmt.Errorf("%s has no meaning for the API responses: remove it, or set api: chat", option.name)
		}
	}
	for _, name := range responsesbody.Own {
		if _, taken := p.Extra[name]; taken {
			return fmt.Errorf("the field %q cannot be set for the API responses: the client sets it, or keeps what "+
				"it names itself", name)
		}
	}
	return nil
}

// responsesProfile returns a profile of a kind of server without what is for requests of chat completions.
func responsesProfile(p Profile) Profile {
	p.API, p.Deployments = APIResponses, false
	p.TokenField, p.NoStreamUsage, p.EmptyContent = "", false, ""
	if p.Reasoning == ReasoningRequire {
		p.Reasoning = ReasoningSame
	}
	return p
}

// noEncryption matches the error of a model that has no encrypted reasoning, which the Responses API is asked for.
var noEncryption = regexp.MustCompile(`(?i)encrypted.?content is not supported`)

// profileFor returns the profile for requests to a model, and the Form for inference.Sent.
func (c *Client) profileFor(model string) (Profile, string) {
	if form, plain := c.plain.Load(model); plain {
		profile := c.profile
		profile.Reasoning = ReasoningNever
		return profile, form.(string) //nolint:forcetypeassert // it holds nothing else
	}
	return c.profile, c.form
}

// isPlain reports whether a request with a profile has failed because the model has no encrypted reasoning. Later
// requests do without it.
func (c *Client) isPlain(model string, sent Profile, failure *inference.Error) bool {
	if sent.API != APIResponses || sent.Reasoning == ReasoningNever || failure.Status != http.StatusBadRequest ||
		!noEncryption.MatchString(failure.Detail) {
		return false
	}
	sent.Reasoning = ReasoningNever
	c.plain.Store(model, formOf(c.name, sent))
	return true
}

var errNoInput = errors.New("the request has no message besides the system's; this API needs at least one")

// functions makes the functions of declared tools.
var functions = wire.NewDeclarations(func(t inference.ToolDefinition) wire.Encoded {
	f := wire.Object{"name": wire.ToolName(t.Name), "parameters": wire.Schema(t.Parameters), "type": "function",
		"strict": false}
	if t.Description != "" {
		f["description"] = t.Description
	}
	text, _ := wire.Append(nil, f) // texts, and JSON that was decoded
	return text
})

// renderResponses returns the body of a request of the Responses API.
func renderResponses(provider string, p Profile, req inference.Request) (wire.Body, error) {
	tools, choice := req.Tools, req.ToolChoice
	if len(tools) == 0 {
		tools, choice = wire.FormerTools(req.Messages), inference.ToolChoiceNone
	}
	f := responsesbody.Form{
		Provider: provider, Stream: !p.NoStream, NoReasoning: p.Reasoning == ReasoningNever, NoUser: p.NoUser,
		NoCalls: choice == inference.ToolChoiceNone && !p.NoToolChoice, Extra: p.Extra,
		IDFormat: wire.IDFormat(p.IDs),
	}
	for _, tool := range functions.Of(tools) {
		f.Tools = append(f.Tools, tool)
	}
	body, ok := responsesbody.Render(f, req)
	if !ok {
		return wire.Body{}, errNoInput
	}
	return body, nil
}
