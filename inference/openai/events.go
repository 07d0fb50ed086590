package openai

import (
	"bufio"
	"bytes"
	"io"
	"iter"
)

// An event is one server-sent event.
type event struct {
	name string
	data []byte
}

// readEvents reads server-sent events. It is lenient: any line ending, a byte
// order mark, fields without a space, comments, and a last event that no blank
// line ends. The error of r, other than io.EOF, comes last.
func readEvents(r io.Reader, maxLine int) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 4096), maxLine)
		lines.Split(splitLine)
		var e event
		var pending bool
		first := true
		for lines.Scan() {
			line := lines.Bytes()
			if first {
				line, first = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF")), false
			}
			if len(line) == 0 {
				if pending && !yield(e, nil) {
					return
				}
				e, pending = event{}, false
				continue
			}
			pending = e.field(line) || pending
		}
		// What stands before an error may be half an event.
		if err := lines.Err(); err != nil {
			yield(event{}, err)
		} else if pending {
			yield(e, nil)
		}
	}
}

// field adds a line to the event, and says whether the event has data or a
// name for it.
func (e *event) field(line []byte) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if e.data != nil {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
		if e.data == nil {
			e.data = []byte{}
		}
		return true
	case "event":
		e.name = string(value)
		return true
	}
	return false
}

// splitLine is a bufio.SplitFunc for lines that end with LF, CR LF or CR.
func splitLine(data []byte, atEOF bool) (advance int, token []byte, err error) {
	i := bytes.IndexAny(data, "\r\n")
	switch {
	case i < 0 && (!atEOF || len(data) == 0):
		return 0, nil, nil
	case i < 0:
		return len(data), data, nil
	case data[i] == '\r' && i+1 == len(data) && !atEOF:
		return 0, nil, nil // an LF may follow
	case data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n':
		return i + 2, data[:i], nil
	}
	return i + 1, data[:i], nil
}
