package redact_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"turnkeeper/internal/redact"
)

// TestReader checks that reading in pieces of any size masks like masking the whole text.
func TestReader(t *testing.T) {
	m := redact.New([]string{secret, "abcdefghij"})
	text := strings.Repeat("a "+secret+" b abcdefghij and abcdefghi\xff\x00 é ", 3000) + secret[:8]
	want := m.String(text)
	if !strings.Contains(want, redact.Placeholder) {
		t.Fatal("nothing is masked")
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"as it comes": func(r io.Reader) io.Reader {
			return r
		}, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader,
	} {
		got, err := io.ReadAll(wrap(m.Reader(iotest.DataErrReader(wrap(strings.NewReader(text))))))
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes of %d, error %v", name, len(got), len(want), err)
		}
	}
	boom := errors.New("boom")
	got, err := io.ReadAll(m.Reader(io.MultiReader(strings.NewReader("abcde"), iotest.ErrReader(boom))))
	if !errors.Is(err, boom) || string(got) != "abcde" {
		t.Errorf("one that breaks off: %q, error %v", got, err)
	}
}

type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

func TestAReaderIsClosed(t *testing.T) {
	body := &closable{Reader: strings.NewReader("x")}
	if err := redact.New(nil).Reader(body).(io.Closer).Close(); err != nil || !body.closed {
		t.Errorf("closed %v, error %v", body.closed, err)
	}
}
