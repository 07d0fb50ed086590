package openai_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/endtest"
)

// TestRequestsEndWithTheirCaller checks that each kind of request to a provider is cancelled when the caller's context
// is.
func TestRequestsEndWithTheirCaller(t *testing.T) {
	ask := func(ctx context.Context, c *openai.Client) error {
		_, err := c.Generate(ctx, inference.Request{Model: "m", Messages: []inference.Message{{Role: inference.RoleUser,
			Text: "hi"}}}, nil)
		return err
	}
	window := func(ctx context.Context, c *openai.Client) error {
		_, err := c.Window(ctx, "m")
		return err
	}
	for name, c := range map[string]struct {
		profile  string
		noStream bool
		request  func(context.Context, *openai.Client) error
	}{
		"an answer":         {request: ask},
		"an answer at once": {noStream: true, request: ask},
		"the list of models": {request: func(ctx context.Context, c *openai.Client) error {
			_, _, err := c.Models(ctx)
			return err
		}},
		"a window":              {request: window},
		"a window of Ollama":    {profile: "ollama", request: window},
		"a window of llama.cpp": {profile: "llamacpp", request: window},
	} {
		t.Run(name, func(t *testing.T) {
			endtest.Each(t, func(t *testing.T, h *endtest.Hang) {
				server := httptest.NewServer(h)
				defer server.Close()
				profile, _ := openai.ProfileNamed(c.profile)
				profile.NoStream = profile.NoStream || c.noStream
				client := newClient(t, openai.Config{Name: "p", BaseURL: server.URL, Profile: profile})
				if err := h.Check(t, func(ctx context.Context) error {
					return c.request(ctx, client)
				}); !errors.Is(err, context.Canceled) {
					t.Errorf("its error is %v", err)
				}
			})
		})
	}
}
