package openai_test

import (
	"encoding/json"
	"testing"

	"turnkeeper/inference/openai"
)

// TestFittingProfiles checks that what the API cannot carry is refused when a client is made, and that every kind of
// server has a profile for it.
func TestFittingProfiles(t *testing.T) {
	for _, name := range openai.ProfileNames() {
		newClient(t, openai.Config{Name: "p", Profile: openai.ResponsesProfile(name)})
	}
	for name, p := range map[string]openai.Profile{
		"TokenField":   {TokenField: "max_tokens"},
		"stream_usage": {NoStreamUsage: true},
		"content":      {EmptyContent: openai.ContentString},
		"reasoning":    {Reasoning: openai.ReasoningRequire},
		"deployments":  {Deployments: true},
		"store":        {Extra: map[string]json.RawMessage{"store": json.RawMessage("true")}},
		"previous":     {Extra: map[string]json.RawMessage{"previous_response_id": json.RawMessage(`"r"`)}},
	} {
		p.API = openai.APIResponses
		if _, err := openai.New(openai.Config{Name: "p", Profile: p}); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Log(err)
		}
	}
}
