package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"turnkeeper/tools/program"
)

// Bounds of what a server may send.
const (
	// maxFrame is the largest message that is taken, in bytes.
	maxFrame   = 16 << 20
	maxLogLine = 1000 // bytes of a line of its standard error, or of rubbish, in the log
	maxTail    = 2000 // bytes of its standard error that are kept for the case that it ends
)

var errFrame = &badOutput{fmt.Sprintf("it sent a message of more than %d MiB", maxFrame>>20)}

// A badOutput is why a connection is ended that the server has not ended.
type badOutput struct{ text string }

func (e *badOutput) Error() string { return e.text }

// A stdio is a connection to a program that serves over its standard input and
// output. Lines on its output that are no messages are dropped: banners and
// stray prints are common.
type stdio struct {
	process *program.Process
	log     *zap.Logger
	limits  limits

	incoming chan jsonrpc.Message
	broken   chan struct{} // closed when nothing more can be read, after why is set
	why      error
	closed   chan struct{}
	once     sync.Once
	writing  sync.Mutex
	readers  sync.WaitGroup

	mu   sync.Mutex
	tail []byte // of its standard error
}

// A started process is a Transport, once.
var _ sdk.Transport = (*stdio)(nil)

func startProgram(s Server, log *zap.Logger, limits limits) (*stdio, error) {
	process, err := program.Start(program.Program{Argv: s.Command, Dir: s.Dir, Env: s.Env})
	if err != nil {
		return nil, err
	}
	c := &stdio{
		process: process, log: log, limits: limits,
		incoming: make(chan jsonrpc.Message), broken: make(chan struct{}), closed: make(chan struct{}),
	}
	c.readers.Go(c.readOutput)
	c.readers.Go(c.readErrors)
	return c, nil
}

// Connect gives the connection itself: the program runs already.
func (c *stdio) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// intact says that messages still go both ways.
func (c *stdio) intact() bool {
	select {
	case <-c.broken:
	case <-c.closed:
	default:
		return true
	}
	return false
}

// SessionID is empty: a program has one session.
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
	input := bufio.NewReaderSize(c.process.Stdout, 64<<10)
	for rubbish := 0; ; {
		line, err := readLine(input, c.limits)
		messages, fault := decode(line)
		switch {
		case err == nil && fault != nil && isAnswer(line): // somebody waits for it
			err = &badOutput{fmt.Sprintf("it sent an answer that cannot be read: %v", fault)}
		case err == nil && fault != nil:
			rubbish += len(line) + 1
			c.log.Debug("an MCP server printed a line that is no message", zap.ByteString("line", line[:min(len(line), maxLogLine)]))
			if rubbish > c.limits.Frame {
				err = &badOutput{fmt.Sprintf("it printed more than %d MiB that is no message", c.limits.Frame>>20)}
			}
		case len(messages) > 0:
			rubbish = 0
		}
		for _, m := range messages {
			select {
			case c.incoming <- m:
			case <-c.closed:
				err = io.EOF
			}
		}
		if err != nil {
			c.why = err
			close(c.broken)
			return
		}
	}
}

// readLine reads up to the next line break. For an answer that is too large it returns the
// error that takes its place; any other line that is too large is an error.
func readLine(input *bufio.Reader, limits limits) (line []byte, err error) {
	var large *skimmer
	for {
		piece, err := input.ReadSlice('\n')
		switch {
		case large != nil:
			large.feed(piece)
		case len(line)+len(piece) > limits.Frame:
			large = &skimmer{}
			large.feed(line)
			large.feed(piece)
			line = nil
		default:
			line = append(line, piece...)
		}
		switch {
		case large != nil && large.size > limits.Drop:
			return nil, errFrame
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case large != nil && err == nil:
			if line = large.replacement(); line == nil {
				err = errFrame
			}
			return line, err
		}
		return bytes.TrimSpace(line), err
	}
}

// decode reads the message of a line, or the messages of an older protocol's
// batch. An empty line has none.
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

// isAnswer says that a line is meant for the answer to a request.
func isAnswer(line []byte) bool {
	var m struct {
		Version       json.RawMessage `json:"jsonrpc"`
		ID            json.RawMessage `json:"id"`
		Result, Error json.RawMessage
	}
	return json.Unmarshal(line, &m) == nil && m.Version != nil && m.ID != nil && string(m.ID) != "null" && (m.Result != nil || m.Error != nil)
}

func (c *stdio) readErrors() {
	defer func() { _ = c.process.Stderr.Close() }()
	input := bufio.NewReaderSize(c.process.Stderr, maxLogLine)
	for {
		line, err := input.ReadSlice('\n') // a longer one comes in pieces
		if text := bytes.TrimSpace(line); len(text) > 0 {
			c.log.Debug("an MCP server wrote to its standard error", zap.String("line", clean(string(text))))
			c.keep(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (c *stdio) keep(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = append(c.tail, line...)
	c.tail = c.tail[max(0, len(c.tail)-maxTail):]
}

// lastWords is the end of what the program wrote to its standard error.
func (c *stdio) lastWords() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clean(string(c.tail))
}

// Write sends a message. A write that ctx cuts short breaks the connection.
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
	case n == 0 && ctx.Err() != nil: // the connection is as it was
		traceOf(ctx).unsent()
		return ctx.Err()
	}
	_ = c.Close()
	return fmt.Errorf("it does not read what it is sent: %w", err)
}

// Close tells the program to end, and sees to it that it does. It does not wait
// for that.
func (c *stdio) Close() error {
	c.once.Do(func() {
		close(c.closed)
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

// gone is closed when the program and all that it started has ended.
func (c *stdio) gone() <-chan struct{} { return c.process.Done() }

// reason says why the connection is lost.
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
