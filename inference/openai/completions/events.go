package completions

import (
	"bufio"
	"bytes"
	"io"
)

// maxLine is the maximum size of a line of a stream. The client limits the whole answer to
// the same size.
const maxLine = 32 << 20

// An events reads server-sent events. A line ends with LF, CR LF or CR, and the last event may
// lack the blank line after it.
type events struct {
	lines  *bufio.Scanner
	first  bool // no line was read yet
	skipLF bool // the last line ended with a CR
	kind   string
	data   []byte // its lines, each with an LF; valid until the next call of next
}

func newEvents(body io.Reader) *events {
	e := &events{lines: bufio.NewScanner(body), first: true}
	e.lines.Buffer(nil, maxLine)
	e.lines.Split(e.split)
	return e
}

// split is a bufio.SplitFunc. It returns a line that ends with CR before the next byte arrives.
func (e *events) split(data []byte, atEOF bool) (advance int, line []byte, err error) {
	start := 0
	if e.skipLF && len(data) > 0 {
		e.skipLF = false
		if data[0] == '\n' {
			start = 1
		}
	}
	rest := data[start:]
	if i := bytes.IndexAny(rest, "\r\n"); i >= 0 {
		e.skipLF = rest[i] == '\r'
		return start + i + 1, rest[:i:i], nil
	}
	if atEOF && len(rest) > 0 {
		return len(data), rest, nil
	}
	return start, nil, nil
}

// next reads an event with data into kind and data, and reports whether there was one.
func (e *events) next() bool {
	e.kind, e.data = "", e.data[:0]
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if e.first {
			line, e.first = bytes.TrimPrefix(line, []byte(byteOrderMark)), false
		}
		if len(line) == 0 {
			if len(e.data) > 0 {
				return true
			}
			e.kind = ""
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			e.kind = string(value)
		case "data":
			e.data = append(append(e.data, value...), '\n')
		}
	}
	return len(e.data) > 0 && e.lines.Err() == nil
}

const byteOrderMark = "\uFEFF"
