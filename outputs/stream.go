package outputs

import (
	"crypto/sha256"
	"encoding/hex"
	digest "hash"
	"strings"
	"unicode/utf8"

	"turnkeeper"
)

// A Stream is Take for a result that comes in pieces: what it is given it cleans,
// measures and passes on, and it keeps no more than the beginning, for the model.
// It does not bound what it is given. A Stream is for one goroutine.
type Stream struct {
	raw    Raw
	binary bool
	limits Limits

	sum   digest.Hash
	here  int64  // bytes taken
	size  int64  // bytes passed on
	chars int64  // of text passed on
	head  []byte // the text's beginning, of more characters than are shown
	most  int    // of head

	part   []byte // first bytes of a character
	broken bool   // the last bytes were none of a character
}

// NewStream begins a result, which is binary or text. Of raw are used MediaType,
// and what is known of it without its content: Incomplete and Size.
func NewStream(raw Raw, binary bool, limits Limits) *Stream {
	limits = limits.orDefaults()
	return &Stream{raw: raw, binary: binary, limits: limits, sum: sha256.New(), most: utf8.UTFMax * max(limits.MaxChars, 4*MaxPreviewChars)}
}

// Append takes a piece, and appends to what of it is to be stored: of text, clean
// text of whole characters.
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
		if room := s.most - len(s.head); room > 0 {
			s.head = append(s.head, stored[:min(room, len(stored))]...)
		}
	}
}

// appendClean appends what Clean makes of the piece, given that it makes one text
// with those before it. Bytes at its end that may begin a character wait for the
// next piece, if it is not the last.
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

// End ends the result and appends what is left to be stored. incomplete says that
// there was more of it: then a character that was cut is left out.
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
	out := turnkeeper.Output{SizeBytes: s.size, RawBytes: size, Chars: s.chars, SHA256: hex.EncodeToString(s.sum.Sum(nil)), Incomplete: s.raw.Incomplete}
	if s.binary {
		out.MediaType = mediaTypeOr(s.raw.MediaType, "application/octet-stream")
		out.Bytes = []byte{}
		return described(out, known, s.limits)
	}
	out.MediaType = mediaTypeOr(s.raw.MediaType, "text/plain")
	head := string(s.head)
	if len(s.head) == s.most {
		head = wholeCharacters(head)
	}
	out.Tokens = proseTokens(int(s.chars))
	if isJSONType(out.MediaType) || beginsAsJSON(head) {
		out.Tokens = jsonTokens(int(s.chars))
	}
	return Taken{Output: out, Shown: show(head, int(s.chars), out.Tokens, s.limits) + cutNote(out.Incomplete, size, known), Preview: Preview(head)}
}

// wholeCharacters is the text without a character that was cut at its end.
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

// beginsAsJSON stands for looking whether all of a text is JSON, where that is not
// there any more.
func beginsAsJSON(head string) bool {
	head = strings.TrimLeft(head, " \t\r\n")
	return strings.HasPrefix(head, "{") || strings.HasPrefix(head, "[")
}
