package loose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Arguments returns arguments as text: a string unchanged, other values as JSON.
func Arguments(data json.RawMessage) Fragment {
	if !utf8.Valid(data) {
		data = markInvalid(data)
	}
	if IsNull(data) {
		return ""
	}
	if data[0] == '"' {
		return FragmentOf(data)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, data) != nil {
		return Fragment(data)
	}
	return Fragment(compact.String())
}

// markInvalid returns JSON with two escapes of half a surrogate pair for each byte that is not UTF-8. The check of a
// call's arguments refuses them, even if the first completes a pair.
func markInvalid(data json.RawMessage) (marked json.RawMessage) {
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			marked = fmt.Appendf(marked, `\udc%02x\udc%02[1]x`, data[0])
		} else {
			marked = append(marked, data[:size]...)
		}
		data = data[size:]
	}
	return marked
}

// Compact returns arguments without white space, and nothing for {}.
func Compact(text string) string {
	var out bytes.Buffer
	if json.Compact(&out, []byte(text)) != nil {
		return strings.TrimSpace(text)
	}
	if out.String() == "{}" {
		return ""
	}
	return out.String()
}
