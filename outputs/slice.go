package outputs

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A SliceRequest selects a part of a text: around a match of an anchor, or from a position.
// Positions and lengths are characters.
type SliceRequest struct {
	Start  int64  // ignored if there is an anchor
	Length int64  // 0: Window; ignored if there is an anchor
	Anchor string // a plain string to find; empty: none
	Window int64  // characters around the anchor, half before and half after; 0: DefaultWindow
	Match  int64  // which match of the anchor, from 0
}

// DefaultWindow is the default of SliceRequest.Window.
const DefaultWindow = 1000

// ErrNoAnchor is the refusal of an anchor that the text does not contain.
var ErrNoAnchor error = &Refusal{"Anchor not found in content"}

// A Span is a part of a text.
type Span struct {
	Text       string
	Start, End int64 // characters
	Total      int64 // characters of the whole text
}

// SpanHeaderChars is an upper bound for the length of a span's first line.
const SpanHeaderChars = 100

// Render returns the span for the model: a line that says where it stands, then its text.
func (s Span) Render() string {
	return fmt.Sprintf("[chars %d-%d of %d]\n%s", s.Start, s.End, s.Total, s.Text)
}

// Slice reads a part of a text. Errors of the request are Refusals.
func Slice(ctx context.Context, src Source, r SliceRequest) (Span, error) {
	switch {
	case r.Start < 0, r.Length < 0, r.Window < 0, r.Match < 0:
		return Span{}, refusal("start, length, window and match_index must not be negative")
	case r.Window == 0:
		r.Window = DefaultWindow
	}
	if r.Anchor != "" {
		return aroundAnchor(ctx, src, r)
	}
	if r.Length == 0 {
		r.Length = r.Window
	}
	total := src.Chars()
	if r.Start >= total && total > 0 {
		return Span{}, refusal("start %d is past the end: there are %d characters", r.Start, total)
	}
	return read(ctx, src, r.Start, r.Start+min(r.Length, total))
}

func aroundAnchor(ctx context.Context, src Source, r SliceRequest) (Span, error) {
	at, err := find(ctx, src, r.Anchor, r.Match)
	if err != nil {
		return Span{}, err
	}
	before := r.Window / 2
	end := at + int64(utf8.RuneCountInString(r.Anchor))
	return read(ctx, src, at-before, end+min(r.Window-before, src.Chars()))
}

func read(ctx context.Context, src Source, from, to int64) (Span, error) {
	total := src.Chars()
	from, to = min(max(from, 0), total), min(to, total)
	text, err := src.Read(ctx, from, to)
	return Span{Text: text, Start: from, End: to, Total: total}, err
}

// stride is the number of characters that are searched at a time.
const stride = 1 << 16

// find returns the position of the nth match of the anchor. Matches do not overlap.
func find(ctx context.Context, src Source, anchor string, n int64) (int64, error) {
	width := int64(utf8.RuneCountInString(anchor))
	for from := int64(0); from < src.Chars(); {
		part, err := src.Read(ctx, from, from+stride+width-1)
		if err != nil {
			return 0, err
		}
		next := from + stride
		for rest, at := part, from; ; {
			i := strings.Index(rest, anchor)
			if i < 0 {
				break
			}
			at += int64(utf8.RuneCountInString(rest[:i]))
			if n == 0 {
				return at, nil
			}
			n--
			rest, at = rest[i+len(anchor):], at+width
			next = max(next, at)
		}
		from = next
	}
	return 0, ErrNoAnchor
}
