// Package outputs prepares the results of tools, of any source, for the store and for the
// model: it bounds, cleans and measures a result, and decides what the model is shown.
//
// Everything but NewID and Stream is a pure function of its arguments, and safe for
// concurrent use. The package uses no database, model or tool.
package outputs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"turnkeeper"
)

// ChunkBytes is the size of the chunks in which a large result is stored, read and written.
const ChunkBytes = 64 << 10

// Defaults of Limits.
const (
	DefaultMaxBytes = turnkeeper.MaxOutputBytes
	DefaultMaxChars = 6000
)

// Limits are the limits of one result. A number below 1 means the default.
type Limits struct {
	MaxBytes int // maximum stored size, before cleaning
	MaxChars int // maximum number of Unicode characters shown to the model

	// CallID is the id of the tool call by which the model can read the rest of a cut
	// text. Empty: it cannot.
	CallID string

	// Placeholder is shown instead of a text of more than PlaceholderAbove estimated
	// tokens. If it has no ID, the text is always shown.
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

// A Raw is the result of a tool.
type Raw struct {
	Text      string // used when Bytes is nil
	Bytes     []byte // binary content; an empty slice that is not nil is binary too
	MediaType string // empty: text/plain for Text, application/octet-stream for Bytes

	// Incomplete says that Text or Bytes is only the beginning of the result. Size is
	// then the size of the whole result, in bytes; 0: unknown.
	Incomplete bool
	Size       int64
}

// size returns the size of the whole result, given the size of the part that is here. If
// known is false, it is a lower bound.
func (r Raw) size(here int) (size int64, known bool) {
	return max(r.Size, int64(here)), !r.Incomplete || r.Size > int64(here)
}

// A Taken is a result that is ready to be stored and shown.
type Taken struct {
	// Output has all fields but ID, TurnID, Call and CreatedAt. Its Bytes are those of
	// Raw, not a copy. RawBytes is the size before cutting and cleaning, Incomplete says
	// that it was cut, and Description describes binary content to the model.
	Output turnkeeper.Output
	// Shown is for the model: the text, its first MaxChars characters with a marker, the
	// handle, or the description of binary content.
	Shown string
	// Preview is Preview of the text or the description.
	Preview string
}

// Take bounds, cleans and measures a result. It cuts it to MaxBytes.
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

// described returns a binary result with its description.
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

// describe returns the description of binary content for the model.
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

// SHA256 returns the hash of a text in hex, as in Output.SHA256.
func SHA256(text string) string { return hash([]byte(text)) }

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

const maxMediaTypeBytes = 200

// mediaTypeOr returns a media type from outside, on one line and shortened, or the fallback
// if it is empty.
func mediaTypeOr(mediaType, fallback string) string {
	mediaType = strings.Join(strings.Fields(Clean(cutText(mediaType, maxMediaTypeBytes))), " ")
	if mediaType == "" {
		return fallback
	}
	return mediaType
}
