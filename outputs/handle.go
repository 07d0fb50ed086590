package outputs

import (
	"regexp"
	"strconv"
	"strings"
)

// A Handle is a string argument that a result's text replaces.
type Handle struct {
	ID    string // as the model wrote it
	Part  bool   // only the characters [Start, End)
	Start int64
	End   int64 // negative: to the end
}

const handlePrefix = "output:"

var handleForm = regexp.MustCompile(`^output:([^:\s\[\]][^\s\[\]]*)(?:\[([^\[\]]*)\])?$`)

// MaxHandleBytes is the maximum length of a handle.
const MaxHandleBytes = 300

// ParseHandle parses `output:ID` and `output:ID[START:END]`. START and END are characters,
// and each may be empty. The handle must be the whole value; ok is false for any other text.
// The error is a Refusal of an invalid part.
func ParseHandle(value string) (h Handle, ok bool, err error) {
	if len(value) > MaxHandleBytes {
		return Handle{}, false, nil
	}
	m := handleForm.FindStringSubmatch(value)
	if m == nil {
		return Handle{}, false, nil
	}
	h = Handle{ID: m[1], End: -1}
	if !strings.HasSuffix(value, "]") {
		return h, true, nil
	}
	h.Part = true
	start, end, colon := strings.Cut(m[2], ":")
	if !colon || !position(start, &h.Start) || !position(end, &h.End) || h.End >= 0 && h.End < h.Start {
		return Handle{}, true,
			refusal("%s: the part must be [START:END], two whole numbers of characters, the first not above the second",
				value)
	}
	return h, true, nil
}

// position parses a position into to, unless it is empty.
func position(text string, to *int64) bool {
	if text == "" {
		return true
	}
	n, err := strconv.ParseUint(text, 10, 63)
	*to = int64(n)
	return err == nil
}

// Literal returns the text of a value that is not a handle. It removes one colon of a value
// that begins with `output::`, which lets a model write any text.
func Literal(value string) string {
	if rest, ok := strings.CutPrefix(value, handlePrefix+":"); ok {
		return handlePrefix + rest
	}
	return value
}

// Within returns the range of a handle in a text of so many characters. value is the handle
// as the model wrote it. If the range is outside the text, the error is a Refusal.
func (h Handle) Within(value string, chars int64) (start, end int64, err error) {
	start, end = h.Start, h.End
	if end < 0 {
		end = chars
	}
	if start > end || end > chars {
		return 0, 0, refusal("%s is past the end: there are %d characters", value, chars)
	}
	return start, end, nil
}
