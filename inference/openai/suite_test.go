package openai_test

import (
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
)

func newClient(t *testing.T, cfg openai.Config) *openai.Client {
	t.Helper()
	cfg.Read = completions.Read
	c, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestProviderSuite(t *testing.T) {
	inferencetest.RunProviderSuite(t, func(t *testing.T, target inferencetest.Target) inference.Provider {
		cfg := openai.Config{
			Name: target.Name, BaseURL: target.BaseURL, APIKey: openai.Secret(target.APIKey),
			IdleTimeout: target.Idle, Headers: map[string]openai.Secret{},
			Profile: openai.Profile{NoStream: target.NoStream},
		}
		if target.IDs9 {
			cfg.Profile.IDs = openai.IDNine
		}
		for name, value := range target.Header {
			cfg.Headers[name] = openai.Secret(value)
		}
		return newClient(t, cfg)
	})
}
