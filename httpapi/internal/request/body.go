package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"turnkeeper"
)

const (
	// BodyOverhead is how many bytes a body may have beside a message's text.
	BodyOverhead = 16 << 10
	// BytesPerEscape is how many bytes a byte of a message's text may be written as.
	BytesPerEscape = 6
	// BodyTimeout is what a client may take to send a body.
	BodyTimeout = 30 * time.Second
	// MaxReason is how many bytes a reason may have.
	MaxReason = 1000
	// IdempotencyKey is the header that makes a repeat of a request harmless.
	IdempotencyKey = "Idempotency-Key"

	maxTraceParent = 256 // bytes of a traceparent, which may be of a later version
)

// Read reads the JSON object of the request, strictly.
func (c *Call) Read(limit int64, to any) error {
	body, err := c.JSON(limit)
	if err != nil {
		return err
	}
	if err := NoRepeats(body, strings.ToLower); err != nil { // as it is read below: by whatever case
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return Refuse(http.StatusBadRequest, "the request's body is not as it should be: %s", plainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Refuse(http.StatusBadRequest, "the request's body goes on after its JSON object")
	}
	return nil
}

// NoRepeats refuses an object that has a name twice, by what as makes of it.
func NoRepeats(body []byte, as func(string) string) error {
	if name := repeated(body, as); name != "" {
		return Refuse(http.StatusBadRequest, "the request's body has %.80q twice", name)
	}
	return nil
}

// JSON returns the request's body, which must be JSON.
func (c *Call) JSON(limit int64) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); kind != "application/json" {
		return nil, Refuse(http.StatusUnsupportedMediaType, "the body must be application/json")
	}
	body, err := c.Bytes(limit)
	if half := halfPair(body); err == nil && half != "" {
		return nil, Refuse(http.StatusBadRequest, "the request's body has half a surrogate pair, %s, which is no character: send both halves, or the character itself", half)
	}
	return body, err
}

// Bytes returns the request's body, whatever its type.
func (c *Call) Bytes(limit int64) ([]byte, error) {
	control := http.NewResponseController(c.W)
	_ = control.SetReadDeadline(time.Now().Add(BodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(c.W, c.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, Refuse(http.StatusRequestEntityTooLarge, "the request's body is longer than %d bytes", limit)
	}
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, "the request's body could not be read to its end")
	}
	_ = control.SetReadDeadline(time.Time{})
	if !utf8.Valid(body) {
		return nil, Refuse(http.StatusBadRequest, "the request's body is not valid UTF-8")
	}
	return body, nil
}

func plainJSON(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%q cannot be a %s", wrong.Field, wrong.Value)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too soon"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// CheckKey refuses a header Idempotency-Key that does not hold one key: its sender relies on a
// repeat being recognised.
func (c *Call) CheckKey() error {
	if keys := c.Header.Values(IdempotencyKey); len(keys) > 1 || len(keys) == 1 && strings.TrimSpace(keys[0]) == "" {
		return Refuse(http.StatusBadRequest, "the header %s must hold one key, or not be sent", IdempotencyKey)
	}
	return nil
}

// TraceParent returns the sender's trace context; empty: there is none that is valid.
func (c *Call) TraceParent() string {
	value := c.Header.Get("Traceparent")
	if _, ok := turnkeeper.ParseTraceParent(value); !ok || len(value) > maxTraceParent {
		return ""
	}
	return value
}

// ReadOptional is Read for a body that need not be there.
func (c *Call) ReadOptional(to any) error {
	if c.ContentLength == 0 {
		return nil
	}
	return c.Read(BodyOverhead, to)
}
