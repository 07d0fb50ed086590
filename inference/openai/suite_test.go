package openai_test

import (
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
	anthropic "turnkeeper/inference/openai/messages"
	"turnkeeper/inference/openai/responses"
)

func newClient(t *testing.T, cfg openai.Config) *openai.Client {
	t.Helper()
	if cfg.Read == nil {
		cfg.Read = completions.Read
	}
	c, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// readers parse the answers of each wire.
var readers = map[openai.API]openai.ReadAnswer{openai.APIChat: completions.Read, openai.APIMessages: anthropic.Read,
	openai.APIResponses: responses.Read}

func TestProviderSuite(t *testing.T) {
	for _, wire := range inferencetest.Wires() {
		t.Run(wire.Name, func(t *testing.T) {
			api := openai.API(wire.Name)
			inferencetest.RunProviderSuite(t, wire, func(t *testing.T, target inferencetest.Target) inference.Provider {
				cfg := openai.Config{
					Name: target.Name, BaseURL: target.BaseURL, APIKey: openai.Secret(target.APIKey),
					IdleTimeout: target.Idle, Headers: map[string]openai.Secret{}, Read: readers[api],
					Profile: openai.Profile{API: api, NoStream: target.NoStream},
				}
				if target.IDs9 {
					cfg.Profile.IDs = openai.IDNine
				}
				for name, value := range target.Header {
					cfg.Headers[name] = openai.Secret(value)
				}
				return newClient(t, cfg)
			})
		})
	}
}
