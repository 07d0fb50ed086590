package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"turnkeeper/internal/membudget"
)

// A message that is larger than limits.Frame or beyond jsonlimit.MCPMessage is dropped. If it is an answer, an
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
// the message is no answer. why says which limit it exceeds; nil: limits.Frame.
func (s *skimmer) replacement(why error) []byte {
	if s.method || s.depth != 0 || len(s.id) == 0 || string(s.id) == "null" {
		return nil
	}
	text := tooLarge
	if why != nil {
		text += ": " + why.Error()
	}
	line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, s.id, codeTooLarge, text)
	if !json.Valid(line) {
		return nil
	}
	return line
}

const tooLarge = "the answer is too large"

// tooLargeError returns the text for the model about such an answer, from its error response.
func (s Server) tooLargeError(message string) error {
	const lost = "The call was made; what came of it is lost"
	if why, ok := strings.CutPrefix(message, tooLarge+": "); ok {
		return fmt.Errorf("the MCP server %q sent an answer that is not taken: %s. %s", s.Name,
			s.bounded(why, maxNote), lost)
	}
	return fmt.Errorf("the MCP server %q answered with more than %d MiB, and so much is not taken. %s", s.Name,
		maxFrame>>20, lost)
}

// A largeBody checks a message that is the whole body of an HTTP response, and
// replaces an answer that is dropped.
type largeBody struct {
	io.ReadCloser

	ctx    context.Context
	limits limits
	memory *readMemory
	read   io.Reader // nil: nothing has been read yet
}

func (b *largeBody) Read(p []byte) (int, error) {
	if b.read == nil {
		b.read = b.whole()
	}
	return b.read.Read(p)
}

func (b *largeBody) Close() error {
	b.memory.close()
	return b.ReadCloser.Close()
}

func (b *largeBody) whole() io.Reader {
	m := newIntake(b.limits, b.memory.lease)
	var text []byte
	buffer := make([]byte, 32<<10)
	for {
		n, err := b.ReadCloser.Read(buffer)
		piece := buffer[:n]
		if m.large == nil {
			ok, waited := m.feed(b.ctx, piece)
			if waited != nil {
				return failing{waited}
			}
			if text = append(text, piece...); !ok || len(text) > b.limits.Frame {
				piece, text = text, nil
				ok = false
			}
			if ok {
				piece = nil
			}
		}
		if piece != nil {
			if failed := m.drop(piece); failed != nil {
				return failing{failed}
			}
		}
		if err != nil {
			return b.ended(m, text, err)
		}
	}
}

// ended returns what the SDK reads of a body that has ended with this error.
func (b *largeBody) ended(m *intake, text []byte, err error) io.Reader {
	if !errors.Is(err, io.EOF) {
		return io.MultiReader(bytes.NewReader(text[:min(len(text), maxRefusal)]), failing{err})
	}
	if m.large != nil {
		if text, err = m.replacement(); err != nil {
			return failing{err}
		}
		return bytes.NewReader(text)
	}
	isJSON, err := m.end(text)
	switch {
	case err != nil:
		return failing{err}
	case !isJSON && len(text) > maxRefusal:
		return failing{&badOutput{"it sent a body that is not JSON"}}
	}
	b.memory.hand()
	return bytes.NewReader(text)
}

// A readMemory is the memory of what is read of one HTTP response.
type readMemory struct {
	account *membudget.Account
	lease   *membudget.Lease
	call    *membudget.Lease // of the call that waits for the response; nil: none
}

func newReadMemory(ctx context.Context, limits limits) *readMemory {
	account := limits.Memory.Reader()
	return &readMemory{account: account, lease: account.Lease(), call: membudget.Of(ctx)}
}

// hand gives the memory of a message to its call. Without one it is held until close.
func (m *readMemory) hand() {
	if m.call != nil {
		m.lease.Transfer(m.call)
	}
}

func (m *readMemory) close() { m.account.Close() }

// failing is a reader that returns only its error; nil means io.EOF.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// largeEvents checks the messages among the server-sent events of an HTTP
// response, and replaces answers that are dropped. Other events pass unchanged.
type largeEvents struct {
	io.ReadCloser

	ctx    context.Context
	limits limits
	memory *readMemory
	input  *bufio.Reader
	event  []byte  // lines of the current event
	data   *intake // of its data
	ready  []byte  // to be returned by Read
	err    error   // returned after ready
}

func newLargeEvents(ctx context.Context, body io.ReadCloser, limits limits) *largeEvents {
	return &largeEvents{ReadCloser: body, ctx: ctx, limits: limits, memory: newReadMemory(ctx, limits),
		input: bufio.NewReaderSize(body, 64<<10)}
}

func (b *largeEvents) Close() error {
	b.memory.close()
	return b.ReadCloser.Close()
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
	b.memory.lease.Shrink(0)
	b.event, b.data = nil, newIntake(b.limits, b.memory.lease)
	for begins := true; ; { // begins: the piece starts a line
		piece, err := b.input.ReadSlice('\n')
		ends := err == nil
		blank := begins && ends && len(bytes.TrimRight(piece, "\r\n")) == 0
		if failed := b.take(piece, begins); failed != nil {
			b.ready, b.err = nil, failed
			return
		}
		begins = ends
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && b.data.large != nil:
			b.ready, b.err = b.event, err
			return
		case err != nil:
			b.finish()
			b.err = cmp.Or(b.err, err)
			return
		case blank:
			b.finish()
			return
		}
	}
}

var dataField = []byte("data:")

// take adds a line, or a part of one, to the event. Of an event that is
// dropped it keeps only the fields other than data.
func (b *largeEvents) take(piece []byte, begins bool) error {
	if b.data.large != nil {
		return b.drop(piece, begins)
	}
	ok := true
	if data, isData := bytes.CutPrefix(piece, dataField); !begins || isData { // long lines are data
		var err error
		if ok, err = b.data.feed(b.ctx, data); err != nil {
			return err
		}
	}
	if b.event = append(b.event, piece...); ok && len(b.event) <= b.limits.Frame {
		return nil
	}
	lines := b.event
	b.event = nil
	for line := range bytes.Lines(lines) {
		if err := b.drop(line, true); err != nil {
			return err
		}
	}
	return nil
}

func (b *largeEvents) drop(piece []byte, begins bool) error {
	data, isData := bytes.CutPrefix(piece, dataField)
	switch {
	case !begins || isData: // long lines are data
		return b.data.drop(data)
	case len(b.event) < maxToken && len(piece) < maxToken && len(bytes.TrimSpace(piece)) > 0:
		b.event = append(b.event, piece...)
	}
	return nil
}

// finish sets ready to the event that has ended. If it is dropped and no answer,
// the session ends.
func (b *largeEvents) finish() {
	if b.data.large != nil {
		line, err := b.data.replacement()
		if err != nil {
			b.ready, b.err = nil, err
			return
		}
		b.ready = append(append(append(b.event, dataField...), line...), "\n\n"...)
		return
	}
	isJSON, err := b.data.end(dataOf(b.event))
	switch {
	case err != nil:
		b.ready, b.err = nil, err
		return
	case !isJSON && len(b.event) > maxRefusal:
		b.ready, b.err = nil, &badOutput{"it sent an event that is not JSON"}
		return
	}
	if isJSON {
		b.memory.hand()
	}
	b.ready = b.event
}

// dataOf returns the text from the first data of an event on.
func dataOf(event []byte) []byte {
	_, data, _ := bytes.Cut(event, dataField)
	return data
}
