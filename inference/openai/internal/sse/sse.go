// Package sse prepares streams of server-sent events for the decoders of the official clients, which need line feeds
// and
// a blank line after the last event.
package sse

import (
	"bytes"
	"io"
	"strings"
)

const byteOrderMark = "\uFEFF"

// Normal returns a stream without its byte order mark, with LF for CR LF and CR, and with a blank line at its end.
func Normal(body io.Reader) io.Reader {
	head := make([]byte, len(byteOrderMark))
	n, _ := io.ReadFull(body, head) // the next read returns the error again
	head = bytes.TrimPrefix(head[:n], []byte(byteOrderMark))
	return io.MultiReader(&lineFeeds{r: io.MultiReader(bytes.NewReader(head), body)}, strings.NewReader("\n\n"))
}

// lineFeeds replaces every CR LF and CR by LF.
type lineFeeds struct {
	r  io.Reader
	cr bool // the last byte was a CR
}

func (l *lineFeeds) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if !l.cr && bytes.IndexByte(p[:n], '\r') < 0 {
		return n, err
	}
	kept := p[:0]
	for _, b := range p[:n] {
		switch {
		case b == '\r':
			kept = append(kept, '\n')
		case b != '\n' || !l.cr:
			kept = append(kept, b)
		}
		l.cr = b == '\r'
	}
	return len(kept), err
}
