package openai

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/messagesbody"
	"turnkeeper/inference/openai/internal/wire"
)

// A protocol is what differs between the requests of the APIs.
type protocol struct {
	baseURL   string            // of Config.BaseURL if that is empty
	path      string            // below the base URL
	keyHeader string            // of the key if the profile names none; empty: Authorization, as a bearer token
	headers   map[string]string // of each request, besides those of every API
	listing   Listing           // if the profile has none
	render    func(provider string, p Profile, req inference.Request) (wire.Body, error)
	check     func(p Profile) error // of what the API cannot carry; nil: it carries everything
}

// protocols holds the APIs that a Client speaks. An API that is missing here is refused by New, and no host has it as
// its default.
var protocols = map[API]protocol{
	APIChat: {baseURL: "https://api.openai.com/v1", path: "chat/completions", render: renderChat},
	APIResponses: {baseURL: "https://api.openai.com/v1", path: "responses", render: renderResponses,
		check: checkResponses},
	APIMessages: {
		baseURL: "https://api.anthropic.com/v1", path: "messages", keyHeader: "X-Api-Key",
		headers: map[string]string{"Anthropic-Version": anthropicVersion}, listing: listingAnthropic,
		render: renderMessagesBody, check: checkMessages,
	},
}

// anthropicVersion is the version of Anthropic's API.
const anthropicVersion = "2023-06-01"

// hosts holds the APIs that are the default of a host, once protocols has them.
var hosts = map[string]API{"api.openai.com": APIResponses, "api.anthropic.com": APIMessages}

// DefaultAPI returns the API that is spoken at a base URL if none is configured.
func DefaultAPI(baseURL string) API {
	u, err := url.Parse(cmp.Or(baseURL, protocols[APIChat].baseURL))
	if err != nil {
		return APIChat
	}
	api := hosts[strings.ToLower(u.Hostname())]
	if _, spoken := protocols[api]; spoken {
		return api
	}
	return APIChat
}

// protocolOf returns the protocol of an API. An empty one means APIChat.
func protocolOf(api API) (protocol, error) {
	p, ok := protocols[cmp.Or(api, APIChat)]
	if !ok {
		return p, fmt.Errorf("this release does not speak the API %q", string(api))
	}
	return p, nil
}

// render returns the body of a request.
func render(provider string, p Profile, req inference.Request) (wire.Body, error) {
	spoken, err := protocolOf(p.API)
	if err != nil {
		return wire.Body{}, err
	}
	return spoken.render(provider, p, req)
}

func renderMessagesBody(provider string, p Profile, req inference.Request) (wire.Body, error) {
	if p.Reasoning == ReasoningNever {
		provider = "" // no answer is sent back as it came
	}
	o := messagesbody.Options{Provider: provider, NoStream: p.NoStream, Extra: p.Extra}
	body, err := messagesbody.Render(o, req)
	return wire.WholeBody(body), err
}

// addHeaders adds the headers of the API and the key.
func (s protocol) addHeaders(h http.Header, key Secret, profile Profile) {
	for name, value := range s.headers {
		h.Set(name, value)
	}
	switch header := cmp.Or(profile.KeyHeader, s.keyHeader); {
	case key == "":
	case header != "":
		h.Set(header, string(key))
	default:
		h.Set("Authorization", "Bearer "+string(key))
	}
}

// Check returns an error, in plain words, if the API of the profile cannot carry what the profile asks for.
func (p Profile) Check() error {
	spoken, err := protocolOf(p.API)
	if err == nil && spoken.check != nil {
		err = spoken.check(p)
	}
	return err
}

// CheckAnswer returns an error, in plain words, if the limit of answers or the temperature cannot be sent with the
// profile. maxTokens is 0 and temperature nil if they are not set.
func (p Profile) CheckAnswer(maxTokens int, temperature *float64) error {
	if p.API != APIMessages {
		return nil
	}
	return messagesbody.CheckAnswer(p.Extra, maxTokens, temperature)
}

// checkMessages returns an error if the Messages API cannot carry what a profile asks for.
func checkMessages(p Profile) error {
	for _, option := range []struct {
		set  bool
		name string
	}{ // the others say that the server refuses what this API does not send
		{p.TokenField != "", "max_tokens_field"}, {p.EmptyContent != "", "empty_content"}, {p.IDs != "",
			"tool_call_ids"}, {p.Reasoning == ReasoningRequire, "reasoning: require"},
	} {
		if option.set {
			return fmt.Errorf("%s has no meaning for the API messages: remove it, or set api: chat", option.name)
		}
	}
	return messagesbody.Check(p.Extra)
}
