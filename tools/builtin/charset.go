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

// inUTF8 is a text in UTF-8, and what its media type is then. One that names no
// charset, or none that is known, is as it is.
func inUTF8(text io.Reader, mediaType string) (io.Reader, string) {
	kind, params, err := mime.ParseMediaType(mediaType)
	if err != nil || !tools.IsText(mediaType) {
		return text, mediaType
	}
	charset, err := htmlindex.Get(params["charset"])
	if err != nil {
		return text, mediaType
	}
	if name, err := htmlindex.Name(charset); err != nil || name == "utf-8" || name == "replacement" { // the last stands for what nobody should read
		return text, mediaType
	}
	params["charset"] = "utf-8"
	return transform.NewReader(text, unicode.BOMOverride(charset.NewDecoder())), mime.FormatMediaType(kind, params)
}

// shownInUTF8 is the beginning of a text, which may end in the middle of a
// character.
func shownInUTF8(head []byte, mediaType string) string {
	text, _ := inUTF8(strings.NewReader(string(head)), mediaType)
	decoded, _ := io.ReadAll(text) // what can be read of it is shown
	return string(decoded)
}
