package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/wire"
	"turnkeeper/internal/jsonlimit"
)

// A Model is an entry of a server's list of models.
type Model struct {
	Name   string
	Window int // context window in tokens; 0: unknown
}

// Models returns the server's list of models. This also checks the address and the key. known is
// false if the endpoint has no such list, or one with other names than requests use. Errors are
// those of Generate.
func (c *Client) Models(ctx context.Context) (all []Model, known bool, err error) {
	body, failure := c.ask(ctx, http.MethodGet, "models", wire.Body{}, c.listing)
	switch {
	case failure == nil:
		all = readModels(body)
		return all, len(all) > 0 && c.profile.Listing != listingNone, nil
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case failure.Class == inference.ClassNotFound && failure.Status >= 400:
		return nil, false, nil
	}
	return nil, false, c.complete(failure, "")
}

// listing changes a request to one that the server's list of models accepts.
func (c *Client) listing(r *http.Request) {
	if c.profile.Listing != listingAnthropic {
		return
	}
	query := r.URL.Query()
	query.Set("limit", "1000")
	r.URL.RawQuery = query.Encode()
	if c.spoken.path == protocols[APIMessages].path {
		return
	}
	for name, value := range protocols[APIMessages].headers {
		r.Header.Set(name, value)
	}
	if c.key != "" {
		r.Header.Del("Authorization")
		r.Header.Set(protocols[APIMessages].keyHeader, string(c.key))
	}
}

// Window returns the context window of a model as the server reports it, or 0 if it does not, or
// not yet: Ollama does not report that of a model that is not loaded. Errors are those of Generate.
func (c *Client) Window(ctx context.Context, model string) (int, error) {
	switch c.profile.Listing {
	case listingNone:
		return 0, nil
	case listingOllama:
		return c.ollamaWindow(ctx, model)
	}
	all, _, err := c.Models(ctx)
	if err != nil {
		return 0, err
	}
	if i := slices.IndexFunc(all, func(m Model) bool { return plainName(m.Name) == plainName(model) }); i >= 0 &&
		all[i].Window > 0 {
		return all[i].Window, nil
	}
	if c.profile.Listing != listingLlamaCPP {
		return 0, nil
	}
	var props struct {
		Settings struct {
			Window loose.Count `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	err = c.query(ctx, http.MethodGet, "../props", nil, &props)
	return plausible(float64(props.Settings.Window)), err
}

var numCtx = regexp.MustCompile(`(?m)^num_ctx\s+"?(\d+)`)

// ollamaWindow returns the window of a loaded model, else the one that its Modelfile sets. It does
// not use the model's maximum, because Ollama uses a smaller window by default.
func (c *Client) ollamaWindow(ctx context.Context, model string) (int, error) {
	var running struct {
		Models []struct {
			Name   loose.Text  `json:"name"`
			Window loose.Count `json:"context_length"`
		} `json:"models"`
	}
	if err := c.query(ctx, http.MethodGet, "../api/ps", nil, &running); err != nil {
		return 0, err
	}
	for _, m := range running.Models {
		if plainName(string(m.Name)) == plainName(model) && m.Window > 0 {
			return plausible(float64(m.Window)), nil
		}
	}
	body, err := wire.Encode(wire.Object{"model": model})
	if err != nil {
		return 0, err
	}
	var shown struct {
		Parameters loose.Text `json:"parameters"`
	}
	if err := c.query(ctx, http.MethodPost, "../api/show", body, &shown); err != nil {
		return 0, err
	}
	if m := numCtx.FindStringSubmatch(string(shown.Parameters)); m != nil {
		n, _ := strconv.Atoi(m[1])
		return plausible(float64(n)), nil
	}
	return 0, nil
}

// query calls the server's own API and decodes the answer. If the server has no such API, into
// stays unchanged.
func (c *Client) query(ctx context.Context, method, path string, body []byte, into any) error {
	answer, failure := c.ask(ctx, method, path, wire.WholeBody(body))
	switch {
	case failure == nil:
		_ = jsonlimit.ModelList.Unmarshal(answer, into) // missing members stay empty
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failure.Class == inference.ClassNotFound:
		return nil
	}
	return c.complete(failure, "")
}

// ask makes a request and reads the whole answer.
func (c *Client) ask(ctx context.Context, method, path string, body wire.Body,
	change ...func(*http.Request)) ([]byte, *inference.Error) {
	res, failure := c.send(ctx, method, path, body, change...)
	if failure != nil {
		return nil, failure
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := jsonlimit.ModelList.ReadStart(res.Body)
	if err != nil {
		return nil, TransportError(ctx, err)
	}
	return answer, nil
}

// readModels parses a list of models: OpenAI's object, or an array. Servers have different names
// for the window.
func readModels(body []byte) (all []Model) {
	var object struct {
		Data loose.List `json:"data"`
	}
	entries := loose.List{}
	if jsonlimit.ModelList.Check(body) != nil {
		return nil
	}
	if json.Unmarshal(body, &object) == nil {
		entries = object.Data
	} else {
		_ = json.Unmarshal(body, &entries) // not a list: no models
	}
	for _, entry := range entries {
		var m struct {
			ID     loose.Text  `json:"id"`
			VLLM   loose.Count `json:"max_model_len"`
			Groq   loose.Count `json:"context_window"`
			Router loose.Count `json:"context_length"`
			Others loose.Count `json:"max_context_length"`
			Claude loose.Count `json:"max_input_tokens"`
			Meta   struct {
				LlamaCPP loose.Count `json:"n_ctx"` // not n_ctx_train, which is the model's maximum
			} `json:"meta"`
		}
		_ = json.Unmarshal(entry, &m) // members of another type stay empty
		if m.ID != "" {
			window := cmp.Or(m.Meta.LlamaCPP, m.VLLM, m.Groq, m.Router, m.Others, m.Claude)
			all = append(all, Model{Name: string(m.ID), Window: plausible(float64(window))})
		}
	}
	return all
}

// plainName returns a name without what servers add in their lists: Gemini's folder, Ollama's tag.
func plainName(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, "models/"), ":latest")
}

var (
	nameDate    = regexp.MustCompile(`-(20\d{2}-?[01]\d-?[0-3]\d|latest)$`)
	nameRouting = regexp.MustCompile(`:[a-z]+$`) // of OpenRouter
)

// Lists reports whether a list may contain a model. It ignores dates and routing suffixes, because
// lists lack aliases of models, and a false warning would be worse than a missing one.
func Lists(all []Model, name string) bool {
	core := func(name string) string {
		return strings.ToLower(nameDate.ReplaceAllString(nameRouting.ReplaceAllString(plainName(name), ""), ""))
	}
	return slices.ContainsFunc(all, func(m Model) bool {
		return plainName(m.Name) == plainName(name) || core(m.Name) == core(name)
	})
}
