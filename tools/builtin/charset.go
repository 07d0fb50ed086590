package builtin

import (
	"io"
	"mime"
	"strings"

	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"turnkeeper/tools"
)

// inUTF8 converts a text to UTF-8, and returns it with its new media type. Both are
// unchanged if the media type is not text or names no known charset.
func inUTF8(text io.Reader, mediaType string) (io.Reader, string) {
	kind, params, err := mime.ParseMediaType(mediaType)
	if err != nil || !tools.IsText(mediaType) {
		return text, mediaType
	}
	charset, err := htmlindex.Get(params["charset"])
	if err != nil {
		return text, mediaType
	}
	// "replacement" marks charsets that are unsafe to decode
	if name, err := htmlindex.Name(charset); err != nil || name == "utf-8" || name == "replacement" {
		return text, mediaType
	}
	params["charset"] = "utf-8"
	return transform.NewReader(text, unicode.BOMOverride(charset.NewDecoder())), mime.FormatMediaType(kind, params)
}

// shownInUTF8 converts the beginning of a text to UTF-8. It may end within a
// character.
func shownInUTF8(head []byte, mediaType string) string {
	text, _ := inUTF8(strings.NewReader(string(head)), mediaType)
	decoded, _ := io.ReadAll(text) // show what could be decoded
	return string(decoded)
}
