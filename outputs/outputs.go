// Package outputs is the one way of a tool's result, whatever its source, to
// the store and to the model: it bounds and cleans what a tool gave back,
// measures it, and decides what of it the model is shown.
//
// Everything here is a pure function of its arguments (NewID apart) and safe
// for concurrent use. The package knows no database, no model client and no
// tool.
package outputs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"turnkeeper"
)

// Defaults of Limits.
const (
	DefaultMaxBytes = turnkeeper.MaxOutputBytes
	DefaultMaxChars = 6000
)

// Limits bound one result. A value below 1 is the default.
type Limits struct {
	MaxBytes int // of what is stored, counted before cleaning
	MaxChars int // Unicode characters shown to the model

	// CallID is the tool call's id, by which the model may read on where the text
	// is cut. Empty: it cannot.
	CallID string

	// Placeholder is shown in place of a text of more than PlaceholderAbove
	// estimated tokens. Without an ID every text is shown.
	Placeholder      Placeholder
	PlaceholderAbove int64
}

func (l Limits) orDefaults() Limits {
	if l.MaxBytes < 1 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxChars < 1 {
		l.MaxChars = DefaultMaxChars
	}
	return l
}

// A Raw result is what a tool gave back.
type Raw struct {
	Text      string // used when Bytes is nil
	Bytes     []byte // binary content; an empty slice that is not nil is binary too
	MediaType string // empty: text/plain for Text, application/octet-stream for Bytes

	// Incomplete says that Text or Bytes is only the beginning of what there
	// was, and Size how many bytes that had. 0: not known, or those that are here.
	Incomplete bool
	Size       int64
}

// size is how large the result was before anything of it was cut; known says
// that it is not only the least it can have been.
func (r Raw) size(here int) (size int64, known bool) {
	return max(r.Size, int64(here)), !r.Incomplete || r.Size > int64(here)
}

// A Taken result is ready to be stored and shown.
type Taken struct {
	// Output has every field but ID, TurnID, Call and CreatedAt. Its Bytes are
	// those of Raw, not a copy. RawBytes is the size before it was cut and
	// cleaned, Incomplete says that it was cut, and Description is what binary
	// content is to the model.
	Output turnkeeper.Output
	// Shown is for the model: the text, its first MaxChars characters with a
	// marker, the handle, or the description of binary content.
	Shown string
	// Preview is Preview of the text or the description.
	Preview string
}

// Take bounds, cleans and measures a result.
func Take(raw Raw, limits Limits) Taken {
	limits = limits.orDefaults()
	if raw.Bytes != nil {
		return takeBytes(raw, limits)
	}
	return takeText(raw, limits)
}

func takeText(raw Raw, limits Limits) Taken {
	text := Clean(cutText(raw.Text, limits.MaxBytes))
	mediaType := mediaTypeOr(raw.MediaType, "text/plain")
	chars := utf8.RuneCountInString(text)
	size, known := raw.size(len(raw.Text))
	incomplete := raw.Incomplete || len(raw.Text) > limits.MaxBytes
	count := tokens(text, chars, mediaType)
	return Taken{
		Output: turnkeeper.Output{
			MediaType:  mediaType,
			Text:       text,
			SizeBytes:  int64(len(text)),
			RawBytes:   size,
			Chars:      int64(chars),
			Tokens:     count,
			SHA256:     hash([]byte(text)),
			Incomplete: incomplete,
		},
		Shown:   show(text, chars, count, limits) + cutNote(incomplete, size, known),
		Preview: Preview(text),
	}
}

func takeBytes(raw Raw, limits Limits) Taken {
	content := raw.Bytes[:min(len(raw.Bytes), limits.MaxBytes)]
	size, known := raw.size(len(raw.Bytes))
	out := turnkeeper.Output{
		MediaType:  mediaTypeOr(raw.MediaType, "application/octet-stream"),
		Bytes:      content,
		SizeBytes:  int64(len(content)),
		RawBytes:   size,
		SHA256:     hash(content),
		Incomplete: raw.Incomplete || len(raw.Bytes) > limits.MaxBytes,
	}
	return described(out, known, limits)
}

// described is a binary result with what the model is told of it.
func described(out turnkeeper.Output, sizeKnown bool, limits Limits) Taken {
	out.Description = describe(out, sizeKnown)
	chars := utf8.RuneCountInString(out.Description)
	out.Tokens = proseTokens(chars)
	return Taken{
		Output:  out,
		Shown:   show(out.Description, chars, out.Tokens, Limits{MaxChars: limits.MaxChars}),
		Preview: Preview(out.Description),
	}
}

// describe is what the model is told of binary content.
func describe(out turnkeeper.Output, sizeKnown bool) string {
	size := fmt.Sprintf("%d bytes", out.SizeBytes)
	switch {
	case out.Incomplete && !sizeKnown:
		size = fmt.Sprintf("first %d bytes of more", out.SizeBytes)
	case out.Incomplete:
		size = fmt.Sprintf("first %d of %d bytes", out.SizeBytes, out.RawBytes)
	}
	return fmt.Sprintf("[binary result: %s, %s, sha256 %s]", out.MediaType, size, out.SHA256)
}

// SHA256 is the hash of a text as outputs have it, in hex.
func SHA256(text string) string { return hash([]byte(text)) }

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

const maxMediaTypeBytes = 200

// mediaTypeOr is a media type that came from outside, on one line and bounded.
func mediaTypeOr(mediaType, fallback string) string {
	mediaType = strings.Join(strings.Fields(Clean(cutText(mediaType, maxMediaTypeBytes))), " ")
	if mediaType == "" {
		return fallback
	}
	return mediaType
}
