package openai

import (
	"context"
	"io"
	"mime"
	"net/http"

	"turnkeeper/inference"
	"turnkeeper/internal/jsonlimit"
)

// ReadInto reads an answer into a, in the form in which the server sends it: with stream, or with whole if it comes in
// one piece.
func ReadInto[A any](ctx context.Context, res *http.Response, body io.Reader, a A,
	stream func(context.Context, *http.Response, io.Reader, A) *inference.Error,
	whole func(*http.Response, []byte, A) *inference.Error) *inference.Error {
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media == "text/event-stream" {
		return stream(ctx, res, body, a)
	}
	data, err := jsonlimit.ModelAnswer.ReadAll(body)
	if err != nil {
		return TransportError(ctx, err)
	}
	return whole(res, data, a)
}

// NoAnswer returns the error of a body that is not an answer, which the protocol calls noun.
func NoAnswer(res *http.Response, body []byte, noun string) *inference.Error {
	what := res.Header.Get("Content-Type")
	if complaint := ErrorMessage(body); complaint != "" {
		what += ": " + complaint
	}
	return NotWhole(res, "the answer is neither a stream nor a "+noun+"; its content type is "+what)
}

// NotWhole returns the error of an answer that was cut, or is none.
func NotWhole(res *http.Response, why string) *inference.Error {
	return &inference.Error{Class: inference.ClassTransport, Status: res.StatusCode, ByRequest: true, Detail: why}
}

// TooLarge returns the error of an answer beyond a limit.
func TooLarge(res *http.Response, limit error) *inference.Error {
	return &inference.Error{Class: inference.ClassTransport, Status: res.StatusCode,
		Detail: "the answer is not taken: " + limit.Error()}
}
