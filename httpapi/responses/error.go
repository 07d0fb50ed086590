package responses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"turnkeeper"
)

// An Error is told to the client in the shape that clients of OpenAI's API read.
type Error struct {
	Status  int
	Message string
	Param   string // the parameter that is wrong; empty: none
	Code    string // for programs; empty: none
}

func (e *Error) Error() string { return e.Message }

// ErrGone says that the client is gone, or that the answer has begun.
var ErrGone = errors.New("the answer has begun")

// chatCompletions is a path that OpenAI's clients try and this API does not have.
const chatCompletions = "/v1/chat/completions"

// NoPath returns the detail of the refusal of a path that does not exist.
func NoPath(path string) string {
	if path == chatCompletions {
		return "this server has OpenAI's Responses API, and not chat completions: send the request to POST /v1/responses"
	}
	return "there is nothing at this path: GET /openapi.json tells what there is"
}

// Speaks reports whether errors of a path are told in this shape.
func Speaks(path string) bool {
	for _, root := range []string{"/v1/responses", "/v1/models", chatCompletions} {
		if rest, under := strings.CutPrefix(path, root); under && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// An ErrorBody is an error as clients of OpenAI's API read it.
type ErrorBody struct {
	Error errorView `json:"error" schema:"inline"`
}

type errorView struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// Refuse answers with the error.
func (e *Error) Refuse(w http.ResponseWriter, r *http.Request) error {
	kind, code := "invalid_request_error", e.Code
	switch {
	case e.Status == http.StatusTooManyRequests:
		kind, code = "rate_limit_error", "rate_limit_exceeded"
	case e.Status >= http.StatusInternalServerError:
		kind = "server_error"
	case e.Status == http.StatusUnauthorized:
		code = "invalid_api_key"
	}
	// Clients repeat by themselves what fails with 409 or 5xx. The first never comes to
	// another end; the others may have been accepted, and a repeat without a key is
	// another message.
	if e.Status == http.StatusConflict || kind == "server_error" && r.Method == http.MethodPost && keyOf(r) == "" {
		w.Header().Set("X-Should-Retry", "false")
	}
	return write(w, e.Status, ErrorBody{errorView{Message: e.Message, Type: kind, Param: orNull(e.Param), Code: orNull(code)}})
}

func invalid(param, code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Param: param, Code: code}
}

func noResponse(id string) *Error {
	return &Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no response %.60q", id), Code: "response_not_found"}
}

func noModel(name string) *Error {
	return &Error{
		Status: http.StatusNotFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("there is no agent %.80q, or it is not for this token: GET /v1/models lists those that are", name),
	}
}

// accepted puts what the store says of a new message into the words of this API.
func accepted(agent string, err error) error {
	switch {
	case errors.Is(err, turnkeeper.ErrUnknownAgent):
		return noModel(agent)
	case errors.Is(err, turnkeeper.ErrAgentRetired):
		return &Error{Status: http.StatusNotFound, Param: "model", Code: "model_not_found", Message: err.Error()}
	case errors.Is(err, turnkeeper.ErrKeyConflict):
		return &Error{Status: http.StatusConflict, Message: err.Error(), Code: "idempotency_key_in_use"}
	case errors.Is(err, turnkeeper.ErrEmptyMessage):
		return invalid("input", "empty_input", "%s", err)
	case errors.Is(err, turnkeeper.ErrInvalidMessage):
		return invalid("", "", "%s", err)
	default:
		return err
	}
}

func write(w http.ResponseWriter, status int, value any) error {
	var b bytes.Buffer
	if err := encode(&b, value); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		return ErrGone
	}
	return nil
}

// encode writes a value as JSON on one line, with its end.
func encode(b *bytes.Buffer, value any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
