package messages

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/internal/jsonlimit"
)

// What data from the provider is.
type is int

const (
	isPart    is = iota // a part of the answer, or an event that does not matter
	isError             // an error
	isNothing           // not what the API sends
)

// A kind is what every event and every whole answer says of itself.
type kind struct {
	Type    loose.Text      `json:"type"`
	Error   json.RawMessage `json:"error"`
	Content json.RawMessage `json:"content"`
}

// kindOf reads the kind of data. limit is the limit that data exceeds; nil: none.
func kindOf(data []byte) (k kind, ok bool, limit error) {
	err := jsonlimit.ModelMessage.Check(data)
	if limit, beyond := errors.AsType[*jsonlimit.LimitError](err); beyond {
		return k, false, limit
	}
	return k, err == nil && json.Unmarshal(data, &k) == nil && data[0] == '{', nil
}

// isError reports whether data is an error, and no part of an answer.
func (k kind) isError() bool { return k.Type == "error" || !loose.IsNull(k.Error) }

// addWhole adds an answer that is not streamed.
func (a *answer) addWhole(data []byte) (is, error) {
	k, ok, limit := kindOf(data)
	switch {
	case limit != nil:
		return isNothing, limit
	case !ok:
		return isNothing, nil
	case k.isError():
		return isError, nil
	}
	var content []json.RawMessage
	var m sdk.Message
	read := json.Unmarshal(k.Content, &content) == nil && m.UnmarshalJSON(data) == nil
	if !read || content == nil {
		return isNothing, nil
	}
	a.checkEncoding(data)
	a.start(m)
	for _, data := range content {
		if loose.IsObject(data) {
			a.begin(int64(len(a.blocks)), data, true)
		}
	}
	a.takeStop(string(m.StopReason), m.StopDetails)
	a.done = true
	return isPart, a.limit
}

// addEvent adds an event of a stream. name is its name, which its data repeats as its type.
func (a *answer) addEvent(name string, data []byte) (is, error) {
	k, ok, limit := kindOf(data)
	if k.Type != "" {
		name = string(k.Type)
	}
	switch {
	case limit != nil:
		return isNothing, limit
	case name == "error" || k.isError():
		return isError, nil
	case !ok && name != "" && !known[name], string(data) == "[DONE]":
		return isPart, nil
	case !ok:
		return isNothing, nil
	}
	a.checkEncoding(data)
	a.take(name, data)
	return isPart, a.limit
}

// known holds the names of the events that take reads.
var known = map[string]bool{"message_start": true, "content_block_start": true, "content_block_delta": true,
	"content_block_stop": true, "message_delta": true, "message_stop": true}

// take takes an event. Unknown ones do not matter.
func (a *answer) take(name string, data []byte) {
	switch name {
	case "message_start":
		var e sdk.MessageStartEvent
		if e.UnmarshalJSON(data) == nil {
			a.start(e.Message)
		}
	case "content_block_start":
		var e sdk.ContentBlockStartEvent
		if e.UnmarshalJSON(data) == nil {
			a.begin(e.Index, json.RawMessage(e.ContentBlock.RawJSON()), false)
		}
	case "content_block_delta":
		var e sdk.ContentBlockDeltaEvent
		if e.UnmarshalJSON(data) == nil {
			a.grow(e.Index, e.Delta)
		}
	case "content_block_stop":
		var e sdk.ContentBlockStopEvent
		if e.UnmarshalJSON(data) == nil && a.open[e.Index] != nil {
			a.stop(a.open[e.Index])
			a.tellDone(a.open[e.Index])
		}
	case "message_delta":
		var e sdk.MessageDeltaEvent
		if e.UnmarshalJSON(data) == nil {
			a.usage.add([]byte(e.Usage.RawJSON()))
			a.takeStop(string(e.Delta.StopReason), e.Delta.StopDetails)
		}
	case "message_stop":
		a.done = true
	}
}

func (a *answer) checkEncoding(data []byte) {
	if !utf8.Valid(data) {
		a.doubted(doubtEncoding)
	}
}
