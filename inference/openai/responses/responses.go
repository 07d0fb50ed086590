// Package responses parses the answers of OpenAI's Responses API, streamed or not, with openai-go:
// its stream decoder, and its types of calls, reasoning, usage and the end of a response. It uses
// its own code where the library fails a test of this package:
//
//   - Events. The library decodes each into a union of all events, which allocates 12 KB for a
//     delta, and its strings lose halves of surrogate pairs. The few members that all events share
//     are therefore decoded apart.
//   - The end of a stream. The library accepts a stream that was cut.
//   - Items. They are sent back, so their JSON is kept.
//
// The output that the last event has is the answer. Calls that were streamed otherwise are in
// doubt. Servers other than OpenAI's send neither all events nor all of their members: what an item
// lacks is taken from its pieces, if the answer is whole.
package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/sse"
	"turnkeeper/internal/jsonlimit"
)

var _ openai.ReadAnswer = Read

// Read implements openai.ReadAnswer. It calls onDelta, unless nil, with each delta as soon as it
// arrives.
func Read(ctx context.Context, res *http.Response, body io.Reader, req inference.Request, habit *inference.Habit,
	onDelta func(inference.Delta)) (inference.Response, *inference.Error) {
	a := newAnswer(req.Tools, habit, onDelta)
	failure := openai.ReadInto(ctx, res, body, a, readStream, readWhole)
	if failure == nil {
		a.settle(req.MaxOutputTokens)
		var response inference.Response
		if response, failure = a.response(); failure == nil {
			a.speech.End(true)
			a.announceAll()
			return response, nil
		}
		failure.Status = res.StatusCode
	}
	a.speech.End(false)
	failure.Usage = a.usage
	return inference.Response{}, failure
}

// readWhole reads an answer that came in one piece.
func readWhole(res *http.Response, data []byte, a *answer) *inference.Error {
	if err := jsonlimit.ModelMessage.Check(data); isLimit(err) {
		return openai.TooLarge(res, err)
	}
	var frame struct {
		Object loose.Text      `json:"object"`
		Output json.RawMessage `json:"output"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &frame) != nil || frame.Object != "response" && frame.Output == nil &&
		loose.IsNull(frame.Error) {
		return openai.NoAnswer(res, data, "response")
	}
	a.checkEncoding(data)
	return a.close(res, "", data)
}

// readStream reads a stream up to the event with which a response ends. What follows it does not matter.
func readStream(ctx context.Context, res *http.Response, body io.Reader, a *answer) *inference.Error {
	stream := ssestream.NewDecoder(&http.Response{Body: io.NopCloser(sse.Normal(body))})
	for stream.Next() {
		raw := stream.Event()
		data := bytes.TrimSpace(raw.Data)
		if string(data) == "[DONE]" {
			break
		}
		if len(data) == 0 {
			continue
		}
		e, err := readEvent(raw.Type, data)
		switch {
		case isLimit(err):
			return openai.TooLarge(res, err)
		case err != nil && raw.Type != "" && raw.Type != typeError && !strings.HasPrefix(raw.Type, "response."):
			continue // an event of another kind
		case err != nil && raw.Type != typeError:
			return openai.NotWhole(res, "an event of the stream is not a JSON object: it was cut")
		case e.isError():
			return openai.Classify(res.StatusCode, res.Header, data)
		}
		a.checkEncoding(data)
		if e.ends() {
			return a.close(res, string(e.Type), e.Response)
		}
		if limit := a.add(e); limit != nil {
			return openai.TooLarge(res, limit)
		}
	}
	if err := stream.Err(); err != nil {
		return openai.TransportError(ctx, err)
	}
	return openai.NotWhole(res, "the stream ended without the event that ends a response: it was cut")
}
