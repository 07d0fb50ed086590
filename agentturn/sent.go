package agentturn

import (
	"turnkeeper"
	"turnkeeper/inference"
)

// A sentRequest is how an answered request was made, for the record.
type sentRequest struct {
	recipe *turnkeeper.Recipe
	parts  []turnkeeper.RequestPart
	tools  []string // names of those that it declared
}

// A frame is the RequestPart of what else a request is written with.
type frame struct {
	Note string `json:"note"`           // follows the system prompt
	Form string `json:"form,omitempty"` // how the provider wrote it: inference.Sent; empty: it does not say
}

// sent completes the recipe of a request that was answered.
func (t *turn) sent(c *candidate, request composed, res inference.Response) sentRequest {
	recipe := request.recipe
	sent := res.Sent
	if sent.SHA256 == "" {
		sent = inference.SentAs("", Canonical(request.Request))
	}
	part := turnkeeper.NewRequestPart(string(encode(frame{Note: request.note, Form: sent.Form})))
	recipe.Frame, recipe.SHA256, recipe.Bytes = part.SHA256, sent.SHA256, sent.Bytes
	t.noteUsage(c, &recipe, res.Usage)
	var names []string
	for _, tool := range request.Tools {
		names = append(names, tool.Name)
	}
	return sentRequest{&recipe, append(request.parts, part), names}
}

// Canonical is a request as JSON: what counts as sent where a provider does not
// say what it sent.
func Canonical(r inference.Request) []byte { return encode(r) }

// unstored are those of the parts that no earlier round of the turn stored.
func (t *turn) unstored(parts []turnkeeper.RequestPart) (news []turnkeeper.RequestPart) {
	for _, part := range parts {
		if !t.stored[part.SHA256] {
			t.stored[part.SHA256] = true
			news = append(news, part)
		}
	}
	return news
}

// storedParts are the parts that the rounds of the journal stored.
func storedParts(rounds []turnkeeper.Round) map[string]bool {
	stored := map[string]bool{}
	for _, round := range rounds {
		if round.Recipe != nil {
			stored[round.Recipe.Frame], stored[round.Recipe.Tools] = true, true
		}
	}
	return stored
}
