package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"turnkeeper/internal/membudget"
	"turnkeeper/internal/redact"
	"turnkeeper/tools/program"
)

// Limits of what a server may send.
const (
	// maxFrame is the maximum size of a message in bytes.
	maxFrame   = 16 << 20
	maxLogLine = 1000 // bytes in the log of a line of standard error, or of a line that is no message
	maxTail    = 2000 // bytes of standard error to log when the program ends
)

var errFrame = &badOutput{fmt.Sprintf("it sent a message of more than %d MiB", maxFrame>>20)}

// A badOutput says why the client ended a connection because of what the server
// sent.
type badOutput struct{ text string }

func (e *badOutput) Error() string { return e.text }

// A stdio is a connection to a program over its standard input and output. It
// drops lines of output that are no messages: banners and stray prints are
// common.
type stdio struct {
	server  Server
	process *program.Process
	log     *zap.Logger
	limits  limits

	incoming chan jsonrpc.Message
	broken   chan struct{} // closed after why is set, when nothing more can be read
	why      error
	closed   chan struct{}
	once     sync.Once
	writing  sync.Mutex
	readers  sync.WaitGroup

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	account *membudget.Account
	reading *membudget.Lease // of the message that is read

	mu    sync.Mutex
	tail  []byte                 // of its standard error
	calls map[jsonrpc.ID]awaited // the calls that wait for an answer
}

var _ sdk.Transport = (*stdio)(nil)

func startProgram(s Server, log *zap.Logger, limits limits) (*stdio, error) {
	process, err := program.Start(program.Program{Argv: s.Command, Dir: s.Dir, Env: s.Env})
	if err != nil {
		return nil, err
	}
	c := &stdio{
		server: s, process: process, log: log, limits: limits,
		incoming: make(chan jsonrpc.Message), broken: make(chan struct{}), closed: make(chan struct{}),
		account: limits.Memory.Reader(), calls: map[jsonrpc.ID]awaited{},
	}
	c.reading = c.account.Lease()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.readers.Go(c.readOutput)
	c.readers.Go(c.readErrors)
	return c, nil
}

// Connect returns c itself: the program is already running.
func (c *stdio) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// intact reports whether the connection can still read and write.
func (c *stdio) intact() bool {
	select {
	case <-c.broken:
	case <-c.closed:
	default:
		return true
	}
	return false
}

// SessionID returns "": a program has one session.
func (c *stdio) SessionID() string { return "" }

// Read returns the next message.
func (c *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.incoming:
		return m, nil
	case <-c.broken:
		return nil, c.why
	case <-c.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *stdio) readOutput() {
	defer func() { _ = c.process.Stdout.Close() }()
	defer c.account.Close()
	input := bufio.NewReaderSize(c.process.Stdout, 64<<10)
	for rubbish := 0; ; {
		line, isJSON, err := readLine(c.ctx, input, newIntake(c.limits, c.reading))
		messages, fault := []jsonrpc.Message(nil), errNotJSON
		if err == nil && (isJSON || len(line) == 0) {
			messages, fault = decode(line)
		}
		switch {
		case err == nil && isJSON && fault != nil && isAnswer(line): // a call waits for it
			err = &badOutput{fmt.Sprintf("it sent an answer that cannot be read: %v", fault)}
		case err == nil && fault != nil:
			rubbish += len(line) + 1
			c.log.Debug("an MCP server printed a line that is no message",
				zap.String("line", c.server.bounded(string(line), maxLogLine)))
			if rubbish > c.limits.Frame {
				err = &badOutput{fmt.Sprintf("it printed more than %d MiB that is no message", c.limits.Frame>>20)}
			}
		case len(messages) > 0:
			rubbish = 0
		}
		for _, m := range messages {
			if answer, ok := m.(*jsonrpc.Response); ok {
				c.reading.Transfer(c.caller(answer.ID))
			}
			select {
			case c.incoming <- m:
			case <-c.closed:
				err = io.EOF
			}
		}
		c.reading.Shrink(0)
		if err != nil {
			c.why = err
			close(c.broken)
			return
		}
	}
}

var errNotJSON = errors.New("it is not JSON")

// caller returns the memory of the call that waits for an answer, or nil, and forgets it.
func (c *stdio) caller(id jsonrpc.ID) *membudget.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	call, ok := c.calls[id]
	if !ok {
		return nil
	}
	delete(c.calls, id)
	call.stop()
	return call.memory
}

// An awaited call is one that waits for an answer.
type awaited struct {
	memory *membudget.Lease
	stop   func() bool // stops the wait for the end of its context
}

// await remembers the memory of a call until its context ends.
func (c *stdio) await(ctx context.Context, m jsonrpc.Message) {
	call, ok := m.(*jsonrpc.Request)
	l := membudget.Of(ctx)
	if !ok || l == nil || !call.ID.IsValid() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call.ID] = awaited{memory: l, stop: context.AfterFunc(ctx, func() { c.caller(call.ID) })}
}

// readLine reads up to the next line break, and checks the line. If it is an
// answer beyond the limits, it returns the error response that replaces it; any
// other line beyond the limits is an error.
func readLine(ctx context.Context, input *bufio.Reader, m *intake) (line []byte, isJSON bool, err error) {
	for {
		piece, err := input.ReadSlice('\n')
		ok := m.large == nil
		if ok {
			var failed error
			if ok, failed = m.feed(ctx, piece); failed != nil {
				return nil, false, failed
			}
			if line = append(line, piece...); len(line) > m.limits.Frame {
				ok = false
			}
			piece = line
		}
		if !ok {
			line = nil
			if failed := m.drop(piece); failed != nil {
				return nil, false, failed
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case m.large != nil && err == nil:
			line, err = m.replacement()
			return line, true, err
		case err != nil:
			return bytes.TrimSpace(line), false, err
		}
		line = bytes.TrimSpace(line)
		isJSON, err = m.end(line)
		return line, isJSON, err
	}
}

// decode returns the message on a line, or the messages of a batch, which older
// protocols have. An empty line has none.
func decode(line []byte) (messages []jsonrpc.Message, err error) {
	if len(line) == 0 {
		return nil, nil
	}
	batch := []json.RawMessage{line}
	if line[0] == '[' {
		if err := json.Unmarshal(line, &batch); err != nil {
			return nil, err
		}
	}
	for _, raw := range batch {
		m, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// isAnswer reports whether a line is meant as the answer to a request.
func isAnswer(line []byte) bool {
	var m struct {
		Version       json.RawMessage `json:"jsonrpc"`
		ID            json.RawMessage `json:"id"`
		Result, Error json.RawMessage
	}
	return json.Unmarshal(line, &m) == nil && m.Version != nil && m.ID != nil && string(m.ID) != "null" &&
		(m.Result != nil || m.Error != nil)
}

func (c *stdio) readErrors() {
	defer func() { _ = c.process.Stderr.Close() }()
	input := bufio.NewReaderSize(c.process.Stderr, maxLogLine+redact.Margin)
	for begins := true; ; { // begins: the piece starts a line
		piece, err := input.ReadSlice('\n')
		if text := strings.TrimSpace(string(piece)); text != "" && begins { // the rest of a longer line is not logged
			c.log.Debug("an MCP server wrote to its standard error",
				zap.String("line", c.server.bounded(text, maxLogLine)))
		}
		c.keep(piece)
		begins = err == nil
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (c *stdio) keep(piece []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = append(c.tail, piece...)
	c.tail = c.tail[max(0, len(c.tail)-maxTail-redact.Margin):]
}

// lastWords returns the end of the program's standard error.
func (c *stdio) lastWords() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clean(c.server.part(string(c.tail), max(0, len(c.tail)-maxTail), len(c.tail)))
}

// Write sends a message. A failed write closes the connection, unless ctx ended
// before anything was written.
func (c *stdio) Write(ctx context.Context, m jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	traceOf(ctx).send()
	c.await(ctx, m)
	hurried := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.process.Stdin.SetWriteDeadline(time.Now())
		close(hurried)
	})
	n, err := c.process.Stdin.Write(append(line, '\n'))
	if !stop() {
		<-hurried
		_ = c.process.Stdin.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case n == 0 && ctx.Err() != nil: // nothing was written
		traceOf(ctx).unsent()
		return ctx.Err()
	}
	_ = c.Close()
	return fmt.Errorf("it does not read what it is sent: %w", err)
}

// Close closes the program's input, and kills the program if it has not ended
// after limits.End. It returns at once.
func (c *stdio) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.cancel()
		_ = c.process.Stdin.Close()
		go func() {
			select {
			case <-c.process.Done():
			case <-time.After(c.limits.End):
				c.process.Kill()
			}
		}()
	})
	return nil
}

// gone returns a channel that is closed when the program and all its
// descendants have ended.
func (c *stdio) gone() <-chan struct{} { return c.process.Done() }

// reason returns why the connection was lost.
func (c *stdio) reason(err error) string {
	if bad, ok := errors.AsType[*badOutput](err); ok {
		return bad.text
	}
	select {
	case <-c.process.Done():
		said := "its program " + c.process.Ended()
		if words := c.lastWords(); words != "" {
			c.log.Warn("an MCP server ended", zap.String("how", c.process.Ended()), zap.String("standard_error", words))
		}
		return said
	case <-time.After(c.limits.Reason):
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, sdk.ErrConnectionClosed) {
		return "its program closed its output"
	}
	return err.Error()
}
