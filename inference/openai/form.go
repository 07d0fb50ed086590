package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/wire"
)

// formVersion is the version of render. Increase it when the same request and profile give
// another body.
const formVersion = "openai/1 "

// A form holds what a body depends on in addition to its request.
type form struct {
	Provider string  `json:"provider"`
	Profile  Profile `json:"profile"`
}

// formOf returns the Form for inference.Sent.
func formOf(provider string, p Profile) string {
	text, err := wire.Encode(form{provider, p})
	if err != nil { // Extra is not valid JSON; render fails too
		return ""
	}
	return formVersion + string(text)
}

// Render encodes a request again as it was sent. sentForm is the Form of inference.Sent.
// Render fails for the form of another package or of a newer release.
func Render(sentForm string, req inference.Request) ([]byte, error) {
	text, ok := strings.CutPrefix(sentForm, formVersion)
	if !ok {
		return nil, fmt.Errorf("this program does not know the encoding of the request: %.20q", sentForm)
	}
	var f form
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, fmt.Errorf("cannot read the encoding of the request: %w", err)
	}
	body, err := render(f.Provider, f.Profile, req)
	return body.Bytes(), err
}
