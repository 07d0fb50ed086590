package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A message that is larger than limits.Frame is dropped. If it is an answer, an
// error response replaces it: then its call fails and the session continues.

// codeTooLarge is the code of that error response.
const codeTooLarge = -31616

// A skimmer finds the id of a message while the message is being dropped.
type skimmer struct {
	size            int64 // bytes so far
	depth           int   // of objects and arrays
	quoted, escaped bool
	token           []byte // start of the current key or value of the outermost object
	key             string // of the current value
	id              []byte
	method          bool // the message has a method, so it is no answer
}

const maxToken = 200 // bytes

func (s *skimmer) feed(data []byte) {
	s.size += int64(len(data))
	for _, b := range data {
		top := s.depth == 1
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.quoted, s.escaped = b != '"', b == '\\'
		case b == '"':
			s.quoted = true
		case b == '{', b == '[':
			s.depth++
		case b == '}', b == ']':
			if s.depth--; top {
				s.endValue()
			}
			continue
		case top && b == ':':
			s.key, s.token = string(s.token), nil
			continue
		case top && b == ',':
			s.endValue()
			continue
		case b <= ' ':
			continue
		}
		if top && len(s.token) < maxToken {
			s.token = append(s.token, b)
		}
	}
}

func (s *skimmer) endValue() {
	switch s.key {
	case `"id"`:
		s.id = s.token
	case `"method"`:
		s.method = true
	}
	s.key, s.token = "", nil
}

// replacement returns the error response that replaces the message, or nil if
// the message is no answer.
func (s *skimmer) replacement() []byte {
	if s.method || s.depth != 0 || len(s.id) == 0 || string(s.id) == "null" {
		return nil
	}
	line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"the answer is too large"}}`, s.id, codeTooLarge)
	if !json.Valid(line) {
		return nil
	}
	return line
}

// tooLargeError returns the text for the model about such an answer.
func tooLargeError(server string) error {
	return fmt.Errorf("the MCP server %q answered with more than %d MiB, and so much is not taken. The call was made; what came of it is lost", server, maxFrame>>20)
}

// A largeBody replaces a too large answer that is the whole body of an HTTP
// response.
type largeBody struct {
	io.ReadCloser

	limits limits
	read   io.Reader // nil: nothing has been read yet
}

func (b *largeBody) Read(p []byte) (int, error) {
	if b.read == nil {
		b.read = b.whole()
	}
	return b.read.Read(p)
}

func (b *largeBody) whole() io.Reader {
	head, err := io.ReadAll(io.LimitReader(b.ReadCloser, int64(b.limits.Frame)+1))
	if err != nil || len(head) <= b.limits.Frame {
		return io.MultiReader(bytes.NewReader(head), failing{err})
	}
	large := &skimmer{}
	large.feed(head)
	buffer := head[:64<<10]
	for large.size <= b.limits.Drop {
		n, err := b.ReadCloser.Read(buffer)
		large.feed(buffer[:n])
		if errors.Is(err, io.EOF) {
			if line := large.replacement(); line != nil {
				return bytes.NewReader(line)
			}
			break
		}
		if err != nil {
			return failing{err}
		}
	}
	return failing{errFrame}
}

// failing is a reader that returns only its error; nil means io.EOF.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// largeEvents replaces too large answers among the server-sent events of an
// HTTP response. Other events pass unchanged.
type largeEvents struct {
	io.ReadCloser

	limits limits
	input  *bufio.Reader
	event  []byte   // lines of the current event
	large  *skimmer // of its data, if it is too large
	ready  []byte   // to be returned by Read
	err    error    // returned after ready
}

func newLargeEvents(body io.ReadCloser, limits limits) *largeEvents {
	return &largeEvents{ReadCloser: body, limits: limits, input: bufio.NewReaderSize(body, 64<<10)}
}

func (b *largeEvents) Read(p []byte) (int, error) {
	for len(b.ready) == 0 && b.err == nil {
		b.next()
	}
	if len(b.ready) == 0 {
		return 0, b.err
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// next reads up to the end of an event.
func (b *largeEvents) next() {
	b.event, b.large = nil, nil
	for begins := true; ; { // begins: the piece starts a line
		piece, err := b.input.ReadSlice('\n')
		ends := err == nil
		blank := begins && ends && len(bytes.TrimRight(piece, "\r\n")) == 0
		b.take(piece, begins)
		begins = ends
		switch {
		case b.large != nil && b.large.size > b.limits.Drop:
			b.ready, b.err = nil, errFrame
			return
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			b.ready, b.err = b.event, err
			return
		case blank:
			b.ready = b.event
			if b.large != nil {
				b.replace()
			}
			return
		}
	}
}

var dataField = []byte("data:")

// take adds a line, or a part of one, to the event. Of an event that is too
// large it keeps only the fields other than data.
func (b *largeEvents) take(piece []byte, begins bool) {
	if b.large == nil {
		if b.event = append(b.event, piece...); len(b.event) <= b.limits.Frame {
			return
		}
		lines := b.event
		b.event, b.large = nil, &skimmer{}
		for line := range bytes.Lines(lines) {
			b.drop(line, true)
		}
		return
	}
	b.drop(piece, begins)
}

func (b *largeEvents) drop(piece []byte, begins bool) {
	data, isData := bytes.CutPrefix(piece, dataField)
	switch {
	case !begins || isData: // long lines are data
		b.large.feed(data)
	case len(b.event) < maxToken && len(piece) < maxToken && len(bytes.TrimSpace(piece)) > 0:
		b.event = append(b.event, piece...)
	}
}

// replace sets ready to the error response for a dropped answer. If the dropped
// message is no answer, the session ends.
func (b *largeEvents) replace() {
	line := b.large.replacement()
	if line == nil {
		b.ready, b.err = nil, errFrame
		return
	}
	b.ready = append(append(append(b.event, dataField...), line...), "\n\n"...)
}
