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

// An Error is an error in the format of OpenAI's API.
type Error struct {
	Status  int
	Message string
	Param   string // invalid parameter; empty: none
	Code    string // code for programs; empty: none
}

func (e *Error) Error() string { return e.Message }

// ErrGone says that no error can be sent: the client has disconnected, or the response has begun.
var ErrGone = errors.New("the response has begun")

// chatCompletions is a path that OpenAI's clients use and this API does not have.
const chatCompletions = "/v1/chat/completions"

// NoPath returns the detail of the 404 problem for an unknown path.
func NoPath(path string) string {
	if path == chatCompletions {
		return "chat completions are not supported: send the request to POST /v1/responses (OpenAI's Responses API)"
	}
	return "unknown path: GET /openapi.json describes the API"
}

// Speaks reports whether errors of a path have the format of OpenAI's API.
func Speaks(path string) bool {
	for _, root := range []string{"/v1/responses", "/v1/conversations", "/v1/models", chatCompletions} {
		if rest, under := strings.CutPrefix(path, root); under && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// An ErrorBody is the JSON body of an Error.
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
	// OpenAI's clients retry 409 and 5xx by themselves. A retry of a 409 cannot succeed, and after a
	// 5xx the message may have been accepted: without a key, a retry would send another.
	if e.Status == http.StatusConflict || kind == "server_error" && r.Method == http.MethodPost && keyOf(r) == "" {
		w.Header().Set("X-Should-Retry", "false")
	}
	return write(w, e.Status, ErrorBody{errorView{Message: e.Message, Type: kind, Param: orNull(e.Param),
		Code: orNull(code)}})
}

func invalid(param, code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Param: param, Code: code}
}

func noResponse(id string) *Error {
	return &Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no response %.60q", id),
		Code: "response_not_found"}
}

func noModel(name string) *Error {
	return &Error{
		Status: http.StatusNotFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf(
			"there is no agent %.80q, or this token does not cover it: GET /v1/models lists the agents", name),
	}
}

// accepted converts an error of accepting a message into an Error, if the client caused it.
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

// encode writes a value as one line of JSON, with a newline at its end.
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
