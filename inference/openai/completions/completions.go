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
	"mime"
	"net/http"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/jsonlimit"
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
	if failure := take(ctx, res, body, a); failure != nil {
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

// take reads the answer into a.
func take(ctx context.Context, res *http.Response, body io.Reader, a *answer) *inference.Error {
	contentType := res.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(contentType); media == "text/event-stream" {
		return readStream(ctx, res, body, a)
	}
	data, err := jsonlimit.ModelAnswer.ReadAll(body)
	if err != nil {
		return openai.TransportError(ctx, err)
	}
	embedded, ok, limit := a.add(data)
	switch {
	case limit != nil:
		return tooLarge(res, limit)
	case !ok:
		if complaint := openai.ErrorMessage(data); complaint != "" {
			contentType += ": " + complaint
		}
		return &inference.Error{
			Class: inference.ClassTransport, Status: res.StatusCode, ByRequest: true,
			Detail: "the answer is neither a stream nor a completion; its content type is " + contentType,
		}
	case embedded != nil:
		return openai.Classify(res.StatusCode, res.Header, embedded)
	}
	a.done = true
	return nil
}

// tooLarge returns the error of an answer beyond a limit.
func tooLarge(res *http.Response, limit error) *inference.Error {
	return &inference.Error{Class: inference.ClassTransport, Status: res.StatusCode,
		Detail: "the answer is not taken: " + limit.Error()}
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
			return tooLarge(res, limit)
		case embedded != nil:
			return openai.Classify(res.StatusCode, res.Header, embedded)
		case e.Type == "error" || !ok && data[0] == '[':
			return openai.Classify(res.StatusCode, res.Header, data)
		case !ok && a.finish == "":
			return &inference.Error{Class: inference.ClassTransport, Status: res.StatusCode, ByRequest: true,
				Detail: "a chunk of the stream is not JSON: it was cut"}
		}
	}
	err := events.Err()
	if err != nil && a.finish == "" {
		return openai.TransportError(ctx, err)
	}
	a.framed = err == nil && (res.ContentLength >= 0 || len(res.TransferEncoding) > 0 || res.ProtoMajor >= 2)
	return nil
}
