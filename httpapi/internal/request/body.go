package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/traceparent"
)

const (
	// BodyOverhead is the size limit of a body beside a message's text, in bytes.
	BodyOverhead = 16 << 10
	// BytesPerEscape is the maximum size of one byte of text when escaped in JSON (\u0000).
	BytesPerEscape = 6
	// BodyTimeout is the time a client has to send a body.
	BodyTimeout = 30 * time.Second
	// MaxReason is the maximum length of a reason in bytes.
	MaxReason = 1000
	// IdempotencyKey is the header that makes a request safe to repeat.
	IdempotencyKey = "Idempotency-Key"

	maxTraceParent = 256 // bytes; later versions of the header may be longer than version 00
)

// Read decodes the JSON object in the request's body. It refuses unknown and repeated names, and trailing data.
func (c *Call) Read(limit int64, to any) error {
	body, err := c.JSON(limit)
	if err != nil {
		return err
	}
	if err := NoRepeats(body, strings.ToLower); err != nil { // json.Decoder ignores the case of names
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return Refuse(http.StatusBadRequest, "invalid request body: %s", plainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Refuse(http.StatusBadRequest, "the request's body has data after its JSON object")
	}
	return nil
}

// NoRepeats refuses an object with a repeated name; names are equal if as returns the same for them.
func NoRepeats(body []byte, as func(string) string) error {
	if name := repeated(body, as); name != "" {
		return Refuse(http.StatusBadRequest, "the request's body repeats the name %.80q", name)
	}
	return nil
}

// JSON returns the request's body of at most limit bytes, whose type must be application/json.
func (c *Call) JSON(limit int64) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); kind != "application/json" {
		return nil, Refuse(http.StatusUnsupportedMediaType, "the body must be application/json")
	}
	body, err := c.Bytes(limit)
	if beyond, ok := errors.AsType[*jsonlimit.LimitError](jsonlimit.RequestBody.Check(body)); ok && err == nil {
		return nil, Refuse(http.StatusBadRequest, "the request's body is not taken: %s", beyond)
	}
	if half := halfPair(body); err == nil && half != "" {
		return nil, Refuse(http.StatusBadRequest,
			"the request's body has an unpaired surrogate, %s: send both halves, or the character itself", half)
	}
	if err == nil && hasNUL(body) {
		return nil, refuseNUL(body)
	}
	return body, err
}

// refuseNUL returns the problem of a body with a NUL character, which Postgres cannot store. It names the field that
// has it.
func refuseNUL(body []byte) *Problem {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // without fields, no name is told
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if hasNUL(fields[name]) {
			p := Refuse(http.StatusBadRequest, "%.80s has a NUL character (\\u0000), which cannot be stored: remove it",
				name)
			p.Param, p.Code = name, "invalid_value"
			return p
		}
	}
	return Refuse(http.StatusBadRequest,
		"the request's body has a NUL character (\\u0000), which cannot be stored: remove it")
}

// Bytes returns the request's body of at most limit bytes, of any type.
func (c *Call) Bytes(limit int64) ([]byte, error) {
	control := http.NewResponseController(c.W)
	_ = control.SetReadDeadline(time.Now().Add(BodyTimeout))
	resume := c.PauseTimeout()
	body, err := io.ReadAll(http.MaxBytesReader(c.W, c.Body, limit))
	resume()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, Refuse(http.StatusRequestEntityTooLarge, "the request's body is longer than %d bytes", limit)
	}
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, "the request's body could not be read completely")
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
		return "unexpected end"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// CheckKey refuses an Idempotency-Key header that is empty or repeated: its sender expects that a
// repeat is recognised.
func (c *Call) CheckKey() error {
	if keys := c.Header.Values(IdempotencyKey); len(keys) > 1 || len(keys) == 1 && strings.TrimSpace(keys[0]) == "" {
		return Refuse(http.StatusBadRequest, "the header %s must hold one key, or be left out", IdempotencyKey)
	}
	return nil
}

// TraceParent returns the sender's W3C trace context; empty if it is missing or invalid.
func (c *Call) TraceParent() string {
	value := c.Header.Get("Traceparent")
	if _, ok := traceparent.Parse(value); !ok || len(value) > maxTraceParent {
		return ""
	}
	return value
}

// ReadOptional is Read for an optional body: without one, it leaves to unchanged.
func (c *Call) ReadOptional(to any) error {
	if c.ContentLength == 0 {
		return nil
	}
	return c.Read(BodyOverhead, to)
}
