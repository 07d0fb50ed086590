// Package messages parses the answers of Anthropic's Messages API, streamed or not. Only this package imports
// anthropic-sdk-go. It uses the library's stream decoder and types of events, and its own code for what the library
// lacks:
//
//   - The end of a stream. The library accepts a stream without message_stop.
//   - Accumulating events. The library's Accumulate stops at an index that it does not expect, and empties the input of
//     a call that was cut.
//   - Text. The library's strings replace half of a surrogate pair by U+FFFD, though its other half may follow. Texts
//     are therefore read from the raw JSON.
//   - Blocks and deltas of unknown types, which must be sent back as they came.
package messages

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/internal/sse"
)

var _ openai.ReadAnswer = Read

// Read implements openai.ReadAnswer. It calls onDelta, unless nil, with each delta as soon as it arrives.
func Read(ctx context.Context, res *http.Response, body io.Reader, req inference.Request, habit *inference.Habit,
	onDelta func(inference.Delta)) (inference.Response, *inference.Error) {
	a := newAnswer(req.Tools, habit, onDelta)
	if failure := openai.ReadInto(ctx, res, body, a, readStream, readWhole); failure != nil {
		a.speech.End(false)
		failure.Usage = a.usage.total()
		return inference.Response{}, failure
	}
	a.end(req.MaxOutputTokens)
	response, failure := normalize(a, req.MaxOutputTokens)
	a.speech.End(failure == nil)
	if failure != nil {
		failure.Status, failure.Usage = res.StatusCode, a.usage.total()
		return inference.Response{}, failure
	}
	return response, nil
}

// readWhole reads an answer that came in one piece.
func readWhole(res *http.Response, data []byte, a *answer) *inference.Error {
	switch is, limit := a.addWhole(data); {
	case limit != nil:
		return openai.TooLarge(res, limit)
	case is == isError:
		return openai.Classify(res.StatusCode, res.Header, data)
	case is == isNothing:
		return openai.NoAnswer(res, data, "message")
	}
	return nil
}

// readStream reads a stream up to its event message_stop.
func readStream(ctx context.Context, res *http.Response, body io.Reader, a *answer) *inference.Error {
	events := ssestream.NewDecoder(&http.Response{Body: io.NopCloser(sse.Normal(body))})
	for events.Next() {
		e := events.Event()
		data := bytes.TrimSpace(e.Data)
		if len(data) == 0 {
			continue
		}
		switch is, limit := a.addEvent(e.Type, data); {
		case limit != nil:
			return openai.TooLarge(res, limit)
		case is == isError:
			return openai.Classify(res.StatusCode, res.Header, data)
		case is == isNothing:
			return openai.NotWhole(res, "an event of the stream is not JSON: it was cut")
		case a.done:
			return nil
		}
	}
	if err := events.Err(); err != nil {
		return openai.TransportError(ctx, err)
	}
	return openai.NotWhole(res, "the stream ended without message_stop: it was cut")
}
