package completions

import (
	"io"
	"net/http"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"turnkeeper/inference/openai/internal/sse"
)

// newDecoder returns the library's decoder of server-sent events. The decoder alone fails the
// cases "1.4 the last event has no blank line" and "1.4 other line endings and no space after
// the colon" of inferencetest.
func newDecoder(body io.Reader) ssestream.Decoder {
	return ssestream.NewDecoder(&http.Response{Body: io.NopCloser(sse.Normal(body))})
}
