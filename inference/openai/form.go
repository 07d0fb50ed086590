package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"turnkeeper/inference"
)

// formVersion is the way in which render writes requests. It grows when the same
// request and profile give another body.
const formVersion = "openai/1 "

// A form is what a body depends on beside its request.
type form struct {
	Provider string  `json:"provider"`
	Profile  Profile `json:"profile"`
}

// formOf is the Form of inference.Sent.
func formOf(provider string, p Profile) string {
	text, err := encode(form{provider, p})
	if err != nil { // an Extra that is no JSON; render refuses it as well
		return ""
	}
	return formVersion + string(text)
}

// Render writes the body of a request again, as a client did whose answer has
// this inference.Sent. It fails for the form of another package or of a newer
// release.
func Render(sentForm string, req inference.Request) ([]byte, error) {
	text, ok := strings.CutPrefix(sentForm, formVersion)
	if !ok {
		return nil, fmt.Errorf("this program does not know how the request was written: %.20q", sentForm)
	}
	var f form
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, fmt.Errorf("how the request was written cannot be read: %w", err)
	}
	return render(f.Provider, f.Profile, req)
}
