package outputs

import (
	"encoding/json"
	"strings"
)

// tokens estimates the tokens of a text: 2.8 characters per token for JSON, 3.2 for other
// text, rounded up.
func tokens(text string, chars int, mediaType string) int64 {
	if isJSON(text, mediaType) {
		return jsonTokens(chars)
	}
	return proseTokens(chars)
}

func jsonTokens(chars int) int64 { return (int64(chars)*10 + 27) / 28 }

func proseTokens(chars int) int64 { return (int64(chars)*10 + 31) / 32 }

func isJSONType(mediaType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(mediaType), ";")
	kind = strings.TrimSpace(kind)
	return strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "ndjson")
}

func isJSON(text, mediaType string) bool {
	if isJSONType(mediaType) {
		return true
	}
	text = strings.TrimLeft(text, " \t\r\n")
	return strings.HasPrefix(text, "{") && json.Valid([]byte(text)) ||
		strings.HasPrefix(text, "[") && json.Valid([]byte(text))
}
