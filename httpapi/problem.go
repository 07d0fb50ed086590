package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// A problem is an error as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	param, code string // of an error of the Responses API
	ours        bool   // every word of the detail is this program's: it has no secret
}

func (p *problem) Error() string { return p.Detail }

// passes says that the same request may be answered later.
func (p *problem) passes() bool {
	return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
}

// refusal is a problem. A sentence without args is a constant of this program, and is told as it is.
func refusal(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...), ours: len(args) == 0}
}

// told is the detail as the client is told it: without secrets.
func (a *API) told(p *problem) string {
	if p.ours {
		return p.Detail
	}
	return a.cfg.Mask(p.Detail)
}

// conditions are the errors whose own sentence is for the client.
var conditions = []struct {
	err    error
	status int
}{
	{turnkeeper.ErrEmptyMessage, http.StatusUnprocessableEntity},
	{turnkeeper.ErrInvalidMessage, http.StatusUnprocessableEntity},
	{turnkeeper.ErrUnknownAgent, http.StatusUnprocessableEntity},
	{turnkeeper.ErrAgentRetired, http.StatusConflict},
	{turnkeeper.ErrKeyConflict, http.StatusConflict},
	{turnkeeper.ErrWrongState, http.StatusConflict},
	{operate.ErrHeldUp, http.StatusServiceUnavailable},
}

// problemOf is what the client is told of an error; nil: nothing any more.
func (a *API) problemOf(r *http.Request, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if errors.Is(err, errGone) || errors.Is(context.Cause(r.Context()), context.Canceled) {
		return nil
	}
	for _, condition := range conditions {
		if errors.Is(err, condition.err) {
			return refusal(condition.status, "%s", err)
		}
	}
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return refusal(http.StatusNotFound, "there is nothing with this id")
	}
	said := "this cannot be answered now; the server's log says why"
	if storage.Away(err) {
		said = "the database cannot be reached, or does not answer; try again in a moment. The server's log says more"
	}
	a.cfg.Log.Error("a request could not be answered", zap.String("pattern", r.Pattern), zap.String("error", a.cfg.Mask(err.Error())))
	return refusal(http.StatusServiceUnavailable, "%s", said)
}

// answer writes a value.
func (c *call) answer(status int, value any) error {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	if err := encode(c.w, value); err != nil {
		return errGone
	}
	return nil
}

func encode(w io.Writer, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// readTime is what a client may take to send a body.
const readTime = 30 * time.Second

// read reads the JSON object of the request, strictly.
func (c *call) read(limit int64, to any) error {
	body, err := c.body(limit)
	if err != nil {
		return err
	}
	if err := once(body, strings.ToLower); err != nil { // as it is read below: by whatever case
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return refusal(http.StatusBadRequest, "the request's body is not as it should be: %s", plainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return refusal(http.StatusBadRequest, "the request's body goes on after its JSON object")
	}
	return nil
}

// once refuses an object that has a name twice.
func once(body []byte, as func(string) string) error {
	if name := repeated(body, as); name != "" {
		return refusal(http.StatusBadRequest, "the request's body has %.80q twice", name)
	}
	return nil
}

// body is the request's, which is to be JSON.
func (c *call) body(limit int64) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); kind != "application/json" {
		return nil, refusal(http.StatusUnsupportedMediaType, "the body must be application/json")
	}
	body, err := c.bytes(limit)
	if half := halfPair(body); err == nil && half != "" {
		return nil, refusal(http.StatusBadRequest, "the request's body has half a surrogate pair, %s, which is no character: send both halves, or the character itself", half)
	}
	return body, err
}

// bytes is the request's body, whatever it says of itself.
func (c *call) bytes(limit int64) ([]byte, error) {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(readTime))
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refusal(http.StatusRequestEntityTooLarge, "the request's body is longer than %d bytes", limit)
	}
	if err != nil {
		return nil, refusal(http.StatusBadRequest, "the request's body could not be read to its end")
	}
	_ = control.SetReadDeadline(time.Time{})
	if !utf8.Valid(body) {
		return nil, refusal(http.StatusBadRequest, "the request's body is not valid UTF-8")
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
