// Package completions parses the answers of OpenAI's Chat Completions, streamed or not, with
// openai-go. It uses the library's stream decoder and chunk types, and its
// own code where the library fails a case of inferencetest:
//
//   - Accumulating chunks. The library's accumulator fails "1.4 chunk ids differ", "1.4 two
//     parallel calls with the same index", "1.4 two parallel calls without index" and "1.4
//     the name is repeated in each delta".
//   - Text. The library's strings fail "1.4 content is an array of parts" and "1.4 a
//     surrogate pair of arguments split over two chunks". Texts are therefore read from the
//     chunk's raw JSON.
//   - Plain chunks. The library decodes by reflection, which took most of the time of reading an
//     answer. Chunks with nothing unusual are decoded without it, to the same values: see plain.
//   - The end of a stream. The library accepts a stream that was cut ("broken answers").
package completions

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

var _ openai.ReadAnswer = Read

// Read implements openai.ReadAnswer. It calls onDelta, unless nil, with each delta as soon as
// it arrives.
func Read(ctx context.Context, res *http.Response, body io.Reader, req inference.Request, habit *inference.Habit,
	onDelta func(inference.Delta)) (inference.Response, *inference.Error) {
	return newAnswer(req.Tools, habit, onDelta).read(ctx, res, body, req.MaxOutputTokens)
}

// read reads the answer. maxTokens is the limit of the request; 0: none.
func (a *answer) read(ctx context.Context, res *http.Response, body io.Reader, maxTokens int) (inference.Response,
	*inference.Error) {
	if failure := openai.ReadInto(ctx, res, body, a, readStream, readWhole); failure != nil {
		a.speech.End(false)
		failure.Usage = a.usage
		return inference.Response{}, failure
	}
	a.end(maxTokens)
	response, failure := normalize(a, maxTokens)
	a.speech.End(failure == nil)
	if failure != nil {
		failure.Status, failure.Usage = res.StatusCode, a.usage
		return inference.Response{}, failure
	}
	a.announceAll()
	return response, nil
}

// readWhole reads an answer that came in one piece.
func readWhole(res *http.Response, data []byte, a *answer) *inference.Error {
	embedded, ok, limit := a.add(data)
	switch {
	case limit != nil:
		return openai.TooLarge(res, limit)
	case !ok:
		return openai.NoAnswer(res, data, "completion")
	case embedded != nil:
		return openai.Classify(res.StatusCode, res.Header, embedded)
	}
	a.done = true
	return nil
}

// readStream reads a stream to its end. After a finish reason, it ignores errors of the
// connection and chunks that are not JSON, because the answer is complete.
func readStream(ctx context.Context, res *http.Response, body io.Reader, a *answer) *inference.Error {
	events := newDecoder(body)
	for events.Next() {
		e := events.Event()
		data := bytes.TrimSpace(e.Data)
		if string(data) == "[DONE]" {
			a.done = true
			return nil
		}
		if len(data) == 0 {
			continue
		}
		embedded, ok, limit := a.add(data)
		switch {
		case limit != nil:
			return openai.TooLarge(res, limit)
		case embedded != nil:
			return openai.Classify(res.StatusCode, res.Header, embedded)
		case e.Type == "error" || !ok && data[0] == '[':
			return openai.Classify(res.StatusCode, res.Header, data)
		case !ok && a.finish == "":
			return openai.NotWhole(res, "a chunk of the stream is not JSON: it was cut")
		}
	}
	err := events.Err()
	if err != nil && a.finish == "" {
		return openai.TransportError(ctx, err)
	}
	a.framed = err == nil && (res.ContentLength >= 0 || len(res.TransferEncoding) > 0 || res.ProtoMajor >= 2)
	return nil
}
