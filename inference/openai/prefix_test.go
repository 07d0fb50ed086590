package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

// ofOtherAPIs holds answers of the APIs responses and messages, with ids that come again.
var ofOtherAPIs = []string{
	`[{"type":"reasoning","id":"r1","encrypted_content":"x","summary":[]},{"type":"message","id":"m1",` +
		`"role":"assistant","content":[{"type":"output_text","text":"text"}]}]`,
	`[{"type":"message","id":"m2","role":"assistant","content":[{"type":"output_text","text":"text"}]}]`,
	`[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"text"}]`,
}

// TestABodyDoesNotDependOnThoseBefore renders the requests of conversations that grow, and are sometimes cut or
// changed, in turns. What was kept of the requests before must change no body.
func TestABodyDoesNotDependOnThoseBefore(t *testing.T) {
	t.Parallel()
	profiles := []openai.Profile{
		{}, {EmptyContent: openai.ContentString, IDs: "nine"}, {Reasoning: openai.ReasoningNever},
		{API: openai.APIResponses}, {API: openai.APIResponses, Reasoning: openai.ReasoningNever},
		{API: openai.APIMessages}, {API: openai.APIMessages, Reasoning: openai.ReasoningNever},
	}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		conversations := make([][]inference.Message, 3)
		for step := range 40 {
			which := r.IntN(len(conversations))
			messages := conversations[which]
			switch n, draw := len(messages), r.IntN(12); {
			case n > 0 && draw == 0:
				messages = slices.Clone(messages[:r.IntN(n)])
			case n > 0 && draw == 1:
				messages = slices.Clone(messages)
				messages[r.IntN(n)].Text = fmt.Sprint("other ", step)
			default:
				messages = append(slices.Clip(messages), randomHistory(r)...)
				for i := range messages[n:] {
					if r.IntN(3) == 0 {
						messages[n+i] = inference.Message{Role: inference.RoleAssistant, Text: "text", RawProvider: "p",
							Raw: json.RawMessage(one(r, ofOtherAPIs...))}
					}
				}
			}
			conversations[which] = messages
			req := inference.Request{Model: "m", Messages: messages, CacheKey: fmt.Sprintf("kept-%d-%d", seed, which),
				Reasoned: r.IntN(4) == 0}
			provider, profile := one(r, "p", "q"), one(r, profiles...)
			body, err := openai.Body(provider, profile, req)
			alone := req
			alone.CacheKey = fmt.Sprintf("alone-%d-%d", seed, step)
			want, failed := openai.Body(provider, profile, alone)
			want = bytes.ReplaceAll(want, []byte(alone.CacheKey), []byte(req.CacheKey))
			if fmt.Sprint(err) != fmt.Sprint(failed) || !bytes.Equal(body, want) {
				t.Fatalf("seed %d, step %d, %s %+v: got\n%s\nwant\n%s", seed, step, provider, profile, body, want)
			}
		}
	}
}
