package outputs

import (
	"crypto/sha256"
	"encoding/hex"
	digest "hash"
	"strings"
	"unicode/utf8"

	"turnkeeper"
)

// A Stream is Take for a result that arrives in pieces: it cleans, measures and returns
// each piece, and holds only the beginning of the result. It ignores Limits.MaxBytes. A
// Stream belongs to one goroutine.
type Stream struct {
	raw    Raw
	binary bool
	limits Limits

	sum     digest.Hash
	here    int64  // bytes received
	size    int64  // bytes returned
	chars   int64  // characters returned
	head    []byte // beginning of the text, more than is shown
	maxHead int    // maximum length of head

	part   []byte // first bytes of an incomplete character
	broken bool   // the last bytes were invalid UTF-8
}

// NewStream starts a binary or text result. It uses only MediaType, Incomplete and Size of
// raw.
func NewStream(raw Raw, binary bool, limits Limits) *Stream {
	limits = limits.orDefaults()
	return &Stream{raw: raw, binary: binary, limits: limits, sum: sha256.New(),
		maxHead: utf8.UTFMax * max(limits.MaxChars, 4*MaxPreviewChars)}
}

// Append processes a piece, and appends the bytes to store to to. For text, these are clean
// and whole characters.
func (s *Stream) Append(to, piece []byte) []byte {
	s.here += int64(len(piece))
	from := len(to)
	if s.binary {
		to = append(to, piece...)
	} else {
		to = s.appendClean(to, piece, false)
	}
	s.count(to[from:])
	return to
}

func (s *Stream) count(stored []byte) {
	_, _ = s.sum.Write(stored) // it never fails
	s.size += int64(len(stored))
	if !s.binary {
		s.chars += int64(utf8.RuneCount(stored))
		if room := s.maxHead - len(s.head); room > 0 {
			s.head = append(s.head, stored[:min(room, len(stored))]...)
		}
	}
}

// appendClean appends the cleaned piece. The result is the same as if Clean were called for
// the whole text: an incomplete character at the end of the piece, unless it is the last
// one, waits for the next piece.
func (s *Stream) appendClean(to, piece []byte, last bool) []byte {
	if len(s.part) > 0 {
		piece = append(s.part, piece...)
		s.part = nil
	}
	for i := 0; i < len(piece); {
		r, n := rune(piece[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(piece[i:])
		}
		if r == utf8.RuneError && n == 1 {
			if !last && !utf8.FullRune(piece[i:]) {
				s.part = append([]byte(nil), piece[i:]...)
				return to
			}
			if !s.broken {
				to = utf8.AppendRune(to, utf8.RuneError)
			}
			s.broken = true
		} else if s.broken = false; r != 0 {
			to = append(to, piece[i:i+n]...)
		}
		i += n
	}
	return to
}

// End ends the result and appends the remaining bytes to store. incomplete says that the
// result was cut: a character that was cut is then left out.
func (s *Stream) End(to []byte, incomplete bool) ([]byte, Taken) {
	s.raw.Incomplete = s.raw.Incomplete || incomplete
	from := len(to)
	if s.raw.Incomplete {
		s.here -= int64(len(s.part))
	} else if len(s.part) > 0 {
		to = s.appendClean(to, nil, true)
	}
	s.count(to[from:])
	return to, s.taken()
}

func (s *Stream) taken() Taken {
	size, known := s.raw.size(int(s.here))
	out := turnkeeper.Output{SizeBytes: s.size, RawBytes: size, Chars: s.chars,
		SHA256: hex.EncodeToString(s.sum.Sum(nil)), Incomplete: s.raw.Incomplete}
	if s.binary {
		out.MediaType = mediaTypeOr(s.raw.MediaType, "application/octet-stream")
		out.Bytes = []byte{}
		return described(out, known, s.limits)
	}
	out.MediaType = mediaTypeOr(s.raw.MediaType, "text/plain")
	head := string(s.head)
	if len(s.head) == s.maxHead {
		head = wholeCharacters(head)
	}
	out.Tokens = proseTokens(int(s.chars))
	if isJSONType(out.MediaType) || beginsAsJSON(head) {
		out.Tokens = jsonTokens(int(s.chars))
	}
	return Taken{Output: out, Shown: show(head, int(s.chars), out.Tokens, s.limits) + cutNote(out.Incomplete, size,
		known), Preview: Preview(head)}
}

// wholeCharacters returns the text without an incomplete character at its end.
func wholeCharacters(text string) string {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

// beginsAsJSON guesses whether a text is JSON from its beginning, because the whole text is
// no longer available.
func beginsAsJSON(head string) bool {
	head = strings.TrimLeft(head, " \t\r\n")
	return strings.HasPrefix(head, "{") || strings.HasPrefix(head, "[")
}
