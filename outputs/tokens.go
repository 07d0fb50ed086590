package outputs

import (
	"encoding/json"
	"strings"
)

// tokens estimates how many tokens a text takes: 2.8 characters a token for
// JSON, 3.2 for everything else, rounded up.
func tokens(text string, chars int, mediaType string) int64 {
	if isJSON(text, mediaType) {
		return (int64(chars)*10 + 27) / 28
	}
	return proseTokens(chars)
}

func proseTokens(chars int) int64 { return (int64(chars)*10 + 31) / 32 }

func isJSON(text, mediaType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(mediaType), ";")
	kind = strings.TrimSpace(kind)
	if strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "ndjson") {
		return true
	}
	text = strings.TrimLeft(text, " \t\r\n")
	return strings.HasPrefix(text, "{") && json.Valid([]byte(text)) ||
		strings.HasPrefix(text, "[") && json.Valid([]byte(text))
}
