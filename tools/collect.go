package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/internal/membudget"
)

// Run runs a tool and collects its result. A tool that wraps another one calls Run
// to read the whole result. It need not do so to return the Result unchanged.
func Run(ctx context.Context, tool Tool, call Call) (Result, error) {
	return run(ctx, tool, call, Collect)
}

func run(ctx context.Context, tool Tool, call Call, collect func(context.Context,
	Result) (Result, error)) (Result, error) {
	result, err := tool.Run(ctx, call)
	if err != nil {
		closeBody(result.Body)
		membudget.Of(ctx).Settle(0)
		return Result{}, err
	}
	result, err = collect(ctx, result)
	membudget.Of(ctx).Settle(memoryOf(result))
	return result, err
}

// memoryOf returns about the number of bytes that a result takes while it is cleaned and stored.
func memoryOf(r Result) int64 {
	n := len(r.Text) + len(r.Bytes)
	for _, a := range r.Attached {
		n += len(a.Bytes)
	}
	return 2 * int64(n)
}

// Collect reads the Body into Text or Bytes, and cuts the result to
// turnkeeper.MaxOutputBytes, text at a character boundary. It reads one byte beyond
// the limit at most. A complete result within the limit without a Body is returned
// unchanged.
//
// It returns the error of the Body, or the cause of ctx.
func Collect(ctx context.Context, r Result) (Result, error) {
	if r.Body != nil {
		content, more, err := readBody(ctx, r.Body)
		if err != nil {
			return Result{}, err
		}
		r.Body, r.Incomplete = nil, r.Incomplete || more
		if IsText(r.MediaType) {
			r.Text, r.Bytes = string(content), nil
		} else {
			r.Text, r.Bytes = "", content
		}
	}
	if r.Bytes != nil {
		return boundBytes(r), nil
	}
	if over := len(r.Attached) - maxAttached; over > 0 {
		r.Attached = r.Attached[:maxAttached:maxAttached]
		r.Text += fmt.Sprintf("\n\n[%d more parts of the result were dropped: at most %d are kept]", over, maxAttached)
	}
	return boundText(r), nil
}

// maxAttached is the maximum number of attachments of a result.
const maxAttached = 32

func readBody(ctx context.Context, body io.Reader) (content []byte, more bool, err error) {
	var read bytes.Buffer
	memory := membudget.Of(ctx)
	more, err = ReadBody(ctx, body, func(piece []byte) error {
		_, _ = read.Write(piece)                       // it never fails
		return memory.GrowTo(ctx, 3*int64(read.Len())) // and what is copied below
	})
	if err != nil {
		return nil, false, err
	}
	return append([]byte{}, read.Bytes()...), more, nil
}

// ReadBody reads a Body in pieces, at most turnkeeper.MaxOutputBytes, and closes it.
// more reports whether the Body goes on after that. A piece is valid until take
// returns. ReadBody returns the error of take or of the Body, or the cause of ctx.
func ReadBody(ctx context.Context, body io.Reader, take func(piece []byte) error) (more bool, err error) {
	defer closeBody(body)
	// Closing the body unblocks a reader that waits forever.
	stop := context.AfterFunc(ctx, func() { closeBody(body) })
	defer stop()
	reader := untilDone{ctx, body}
	buffer := make([]byte, 64<<10)
	for total := 0; ; {
		left := turnkeeper.MaxOutputBytes - total
		n, err := reader.Read(buffer[:min(len(buffer), left+1)])
		if cause := context.Cause(ctx); cause != nil {
			return false, cause
		}
		if more = n > left; more {
			n = left
		}
		total += n
		if n > 0 {
			if err := take(buffer[:n]); err != nil {
				return false, err
			}
		}
		switch {
		case more, errors.Is(err, io.EOF):
			return more, nil
		case err != nil:
			return false, fmt.Errorf("the result broke off after %d bytes: %w", total, err)
		}
	}
}

// closeBody closes a body that is an io.Closer. It ignores the error and recovers a
// panic: neither concerns the content, and the panic would end the program if the
// tool was abandoned.
func closeBody(body io.Reader) {
	defer func() { _ = recover() }()
	if c, ok := body.(io.Closer); ok {
		_ = c.Close()
	}
}

// untilDone is a reader that ends when its context ends, even if the inner reader
// is endless or returns no bytes.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	n, err := u.Reader.Read(p)
	if n < 0 || n > len(p) {
		return 0, errors.New("its reader counts wrongly")
	}
	return n, err
}

func boundBytes(r Result) Result {
	if len(r.Bytes) > turnkeeper.MaxOutputBytes {
		r.RawBytes, r.Incomplete = max(r.RawBytes, int64(len(r.Bytes))), true
		r.Bytes = bytes.Clone(r.Bytes[:turnkeeper.MaxOutputBytes])
	}
	r.Text = ""
	return r
}

func boundText(r Result) Result {
	if len(r.Text) > turnkeeper.MaxOutputBytes {
		r.RawBytes, r.Incomplete = max(r.RawBytes, int64(len(r.Text))), true
		r.Text = strings.Clone(r.Text[:turnkeeper.MaxOutputBytes])
	}
	if r.Incomplete {
		r.Text = wholeChars(r.Text)
	}
	return r
}

// wholeChars removes an incomplete character from the end of the text.
func wholeChars(text string) string {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		last := text[len(text)-n:]
		if !utf8.RuneStart(last[0]) {
			continue
		}
		if !utf8.FullRuneInString(last) {
			return text[:len(text)-n]
		}
		break
	}
	return text
}
