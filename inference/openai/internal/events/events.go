// Package events decodes streams of server-sent events.
package events

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"
)

// NewDecoder returns the library's decoder of server-sent events. It rewrites the stream,
// because the decoder alone fails the cases "1.4 the last event has no blank line" and "1.4
// other line endings and no space after the colon" of inferencetest.
func NewDecoder(body io.Reader) ssestream.Decoder {
	head := make([]byte, len(byteOrderMark))
	n, _ := io.ReadFull(body, head) // the next read returns the error again
	head = bytes.TrimPrefix(head[:n], []byte(byteOrderMark))
	ended := io.MultiReader(&lineFeeds{r: io.MultiReader(bytes.NewReader(head), body)}, strings.NewReader("\n\n"))
	return ssestream.NewDecoder(&http.Response{Body: io.NopCloser(ended)})
}

const byteOrderMark = "\uFEFF"

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
