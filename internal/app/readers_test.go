package app

import (
	"testing"

	"turnkeeper/inference/openai"
)

// TestEachAPIHasItsReader checks that a worker reads the answers of each API that its client speaks, and of no other.
func TestEachAPIHasItsReader(t *testing.T) {
	for _, api := range []openai.API{openai.APIChat, openai.APIResponses, openai.APIMessages} {
		spoken := (openai.Profile{API: api}).Check() == nil
		if spoken != (readers[api] != nil) {
			t.Errorf("the client speaks %s: %t, and the worker reads it: %t", api, spoken, readers[api] != nil)
		}
	}
}
