package tools

import (
	"mime"
	"strings"
)

var textTypes = map[string]bool{
	"application/json": true, "application/xml": true, "application/javascript": true, "application/ecmascript": true,
	"application/yaml": true, "application/x-yaml": true, "application/toml": true, "application/x-ndjson": true,
	"application/x-www-form-urlencoded": true, "application/sql": true, "application/graphql": true,
}

// IsText reports whether a media type is text. The empty type means text/plain.
// Parameters and case are ignored.
func IsText(mediaType string) bool {
	kind, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		kind, _, _ = strings.Cut(strings.ToLower(mediaType), ";")
		kind = strings.TrimSpace(kind)
	}
	return mediaType == "" || strings.HasPrefix(kind, "text/") || textTypes[kind] ||
		strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml")
}
