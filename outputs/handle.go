package outputs

import (
	"regexp"
	"strconv"
	"strings"
)

// A Handle is a string argument that stands for the text of a result.
type Handle struct {
	ID    string // as the model wrote it
	Part  bool   // only the characters from Start up to End
	Start int64
	End   int64 // less than 0: to the end
}

const handlePrefix = "output:"

var handleForm = regexp.MustCompile(`^output:([^:\s\[\]][^\s\[\]]*)(?:\[([^\[\]]*)\])?$`)

// MaxHandleBytes is the longest that a handle can be.
const MaxHandleBytes = 300

// ParseHandle reads `output:ID` and `output:ID[START:END]`; START and END are
// characters, and either may be left out. Only a whole value is a handle: a text
// that has blanks in it, or goes on after it, is a text. ok is false for one; the
// error is for a handle that makes no sense, in plain words for the model.
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
		return Handle{}, true, refusal("%s: the part must be [START:END], two whole numbers of characters, the first not above the second", value)
	}
	return h, true, nil
}

// position reads a position, where one is given.
func position(text string, to *int64) bool {
	if text == "" {
		return true
	}
	n, err := strconv.ParseUint(text, 10, 63)
	*to = int64(n)
	return err == nil
}

// Literal is the text that a value stands for which is no handle: a value that
// begins with `output::` stands for the text with one colon less, so that every
// text can be written.
func Literal(value string) string {
	if rest, ok := strings.CutPrefix(value, handlePrefix+":"); ok {
		return handlePrefix + rest
	}
	return value
}

// Within are the characters that the handle names of a text with so many. value
// is the handle as it was written.
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
