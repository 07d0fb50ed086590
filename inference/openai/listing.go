package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// A Model is what a server tells of one of its models.
type Model struct {
	Name   string
	Window int // context window in tokens; 0: the server does not tell
}

// maxListBytes bounds a list of models.
const maxListBytes = 16 << 20

// Models asks for the list of models, which shows as well that the endpoint is there and takes the
// key. known is false for an endpoint without such a list, or with one that does not hold what
// requests name. Errors are those of Generate.
func (c *Client) Models(ctx context.Context) (all []Model, known bool, err error) {
	body, failure := c.ask(ctx, http.MethodGet, "models", nil, c.listing)
	switch {
	case failure == nil:
		all = readModels(body)
		return all, len(all) > 0 && c.profile.Listing != listingNone, nil
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case failure.Class == inference.ClassNotFound && failure.Status >= 400:
		return nil, false, nil
	}
	return nil, false, c.own(failure, "")
}

// listing makes a request one that the server's list of models takes.
func (c *Client) listing(r *http.Request) {
	if c.profile.Listing != listingAnthropic {
		return
	}
	query := r.URL.Query()
	query.Set("limit", "1000")
	r.URL.RawQuery = query.Encode()
	r.Header.Set("Anthropic-Version", "2023-06-01")
	if c.key != "" {
		r.Header.Del("Authorization")
		r.Header.Set("X-Api-Key", string(c.key))
	}
}

// Window asks what the server knows of a model's context window; 0: it does not tell, or not yet,
// as Ollama does of a model that is not loaded. Errors are those of Generate.
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
	if i := slices.IndexFunc(all, func(m Model) bool { return plainName(m.Name) == plainName(model) }); i >= 0 && all[i].Window > 0 {
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
	err = c.tell(ctx, http.MethodGet, "../props", nil, &props)
	return plausible(float64(props.Settings.Window)), err
}

var numCtx = regexp.MustCompile(`(?m)^num_ctx\s+"?(\d+)`)

// ollamaWindow is the window that a loaded model has, else the one that its Modelfile sets. What a
// model could take is no answer: Ollama gives it less unless it is told otherwise.
func (c *Client) ollamaWindow(ctx context.Context, model string) (int, error) {
	var running struct {
		Models []struct {
			Name   loose.Text  `json:"name"`
			Window loose.Count `json:"context_length"`
		} `json:"models"`
	}
	if err := c.tell(ctx, http.MethodGet, "../api/ps", nil, &running); err != nil {
		return 0, err
	}
	for _, m := range running.Models {
		if plainName(string(m.Name)) == plainName(model) && m.Window > 0 {
			return plausible(float64(m.Window)), nil
		}
	}
	body, err := encode(object{"model": model})
	if err != nil {
		return 0, err
	}
	var shown struct {
		Parameters loose.Text `json:"parameters"`
	}
	if err := c.tell(ctx, http.MethodPost, "../api/show", body, &shown); err != nil {
		return 0, err
	}
	if m := numCtx.FindStringSubmatch(string(shown.Parameters)); m != nil {
		n, _ := strconv.Atoi(m[1])
		return plausible(float64(n)), nil
	}
	return 0, nil
}

// tell reads an answer of the server's own API. A server without it tells nothing.
func (c *Client) tell(ctx context.Context, method, path string, body []byte, into any) error {
	answer, failure := c.ask(ctx, method, path, body)
	switch {
	case failure == nil:
		_ = json.Unmarshal(answer, into) // what is not there stays empty
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failure.Class == inference.ClassNotFound:
		return nil
	}
	return c.own(failure, "")
}

// ask makes a request and reads the whole answer.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, change ...func(*http.Request)) ([]byte, *inference.Error) {
	res, failure := c.send(ctx, method, path, body, change...)
	if failure != nil {
		return nil, failure
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxListBytes))
	if err != nil {
		return nil, TransportError(ctx, err)
	}
	return answer, nil
}

// readModels reads a list of models: OpenAI's object, or a bare array. Servers tell of windows by
// many names.
func readModels(body []byte) (all []Model) {
	var object struct {
		Data loose.List `json:"data"`
	}
	entries := loose.List{}
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
				LlamaCPP loose.Count `json:"n_ctx"` // n_ctx_train is what the model could take
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

// plainName is a name without what servers add in their lists: Gemini's folder, Ollama's tag.
func plainName(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, "models/"), ":latest")
}

var (
	nameDate    = regexp.MustCompile(`-(20\d{2}-?[01]\d-?[0-3]\d|latest)$`)
	nameRouting = regexp.MustCompile(`:[a-z]+$`) // OpenRouter's ways to serve a model
)

// Lists says whether a model may be one of the list. Lists lack other names of the same model, and
// a name that is taken for listed costs less than a false alarm: so dates and routing do not count.
func Lists(all []Model, name string) bool {
	core := func(name string) string {
		return strings.ToLower(nameDate.ReplaceAllString(nameRouting.ReplaceAllString(plainName(name), ""), ""))
	}
	return slices.ContainsFunc(all, func(m Model) bool {
		return plainName(m.Name) == plainName(name) || core(m.Name) == core(name)
	})
}
