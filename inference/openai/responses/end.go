package responses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	sdk "github.com/openai/openai-go/v3/responses"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/responsesbody"
	"turnkeeper/internal/jsonlimit"
)

// A whole response.
type whole struct {
	Status     loose.Text      `json:"status"`
	Error      json.RawMessage `json:"error"`
	Output     json.RawMessage `json:"output"`
	Usage      json.RawMessage `json:"usage"`
	Incomplete json.RawMessage `json:"incomplete_details"`
}

// close takes the whole response. event is the type of the event that has it; empty: it was not streamed.
func (a *answer) close(res *http.Response, event string, data json.RawMessage) *inference.Error {
	var w whole
	_ = json.Unmarshal(data, &w) // missing members stay empty
	a.head(data)
	a.addUsage(w.Usage)
	switch {
	case event == typeFailed || w.Status == "failed" || !loose.IsNull(w.Error):
		return failed(res, w.Error)
	case event == "" && (w.Status == "in_progress" || w.Status == "queued"):
		return openai.NotWhole(res, "the answer is not whole: its status is "+string(w.Status))
	}
	a.takeFinish(event, w)
	var entries []json.RawMessage
	_ = json.Unmarshal(w.Output, &entries) // none, or of another type
	if len(entries) > maxItems {
		return openai.TooLarge(res, &jsonlimit.LimitError{What: "items", Max: maxItems})
	}
	for _, entry := range entries {
		if item, ok := responsesbody.ReadItem(entry); ok {
			a.output = append(a.output, item)
		}
	}
	return nil
}

// failed returns the error of a response that has failed. cause is its error object.
func failed(res *http.Response, cause json.RawMessage) *inference.Error {
	if loose.IsNull(cause) {
		cause = json.RawMessage(`{"message":"the model's answer has failed, and the server does not say why"}`)
	}
	return openai.Classify(res.StatusCode, res.Header, slices.Concat([]byte(`{"error":`), cause, []byte(`}`)))
}

// takeFinish takes the finish reason: the worst of what the answer says of its end.
func (a *answer) takeFinish(event string, w whole) {
	var why sdk.ResponseIncompleteDetails
	if loose.IsObject(w.Incomplete) {
		_ = why.UnmarshalJSON(w.Incomplete) // a reason of another type counts as none
	}
	ended := map[string]string{typeCompleted: "completed", typeIncomplete: "incomplete",
		"response.cancelled": "cancelled"}[event]
	status := string(w.Status)
	if event != "" && (status == "in_progress" || status == "queued") {
		status = "" // not updated
	}
	for _, reason := range []string{ended, status, why.Reason} {
		if reason != "" && (a.finish == "" || inference.FinishOf(reason) >= inference.FinishOf(a.finish)) {
			a.finish = reason
		}
	}
}

func (a *answer) addUsage(data json.RawMessage) {
	var u sdk.ResponseUsage
	if !loose.IsObject(data) || u.UnmarshalJSON(data) != nil {
		return
	}
	a.reported = true
	a.usage = turnkeeper.Usage{
		InputTokens: tokens(u.InputTokens), OutputTokens: tokens(u.OutputTokens),
		CachedTokens:     tokens(u.InputTokensDetails.CachedTokens),
		CacheWriteTokens: tokens(u.InputTokensDetails.CacheWriteTokens),
		ReasoningTokens:  tokens(u.OutputTokensDetails.ReasoningTokens),
	}
}

// tokens returns n, or 0 if it is negative or not below 2^53.
func tokens(n int64) int64 {
	if n < 0 || n >= 1<<53 {
		return 0
	}
	return n
}

// settle decides what the answer is, once it has ended. maxTokens is the limit of the request; 0: none.
func (a *answer) settle(maxTokens int) {
	a.endPieces()
	streamed := a.streamedCalls()
	if len(a.output) == 0 {
		a.assemble()
	} else {
		for n := range a.output {
			a.output[n] = a.readable(a.output[n])
			a.takeFinal(a.output[n])
		}
		a.raw = listOf(a.output)
		a.compare(streamed)
	}
	a.checkCalls()
	a.cut = a.cut || inference.FinishOf(a.finish) >= inference.FinishCut ||
		maxTokens > 0 && a.usage.OutputTokens >= int64(maxTokens)
	if len(a.final) > 0 && a.finish != "" && inference.FinishOf(a.finish) == inference.FinishUnknown {
		a.doubted(doubtFinish)
	}
	a.speech.Close(a.cut)
}

// readable returns reasoning as its own event had it, if only that has the encrypted form.
func (a *answer) readable(last responsesbody.Item) responsesbody.Item {
	if last.Type != responsesbody.TypeReasoning || loose.Scalar(last.Members["encrypted_content"]) != "" {
		return last
	}
	id := loose.Scalar(last.Members["id"])
	for _, i := range a.items {
		if id != "" && i.id == id && i.whole != nil && loose.Scalar(i.whole.Members["encrypted_content"]) != "" {
			return *i.whole
		}
	}
	return last
}

// endPieces adds the halves of surrogate pairs that were held back and whose other half did not come.
func (a *answer) endPieces() {
	for _, i := range a.items {
		for _, p := range i.parts {
			if rest := p.End(); rest != "" {
				a.text.WriteString(rest)
				a.speech.Add(rest)
			}
		}
		i.refusal.End()
		i.arguments.End()
	}
	a.pass(inference.DeltaThinking, a.reasoning.End())
}

// streamedCalls returns the calls that came in pieces, in the order of the output.
func (a *answer) streamedCalls() (calls []*item) {
	for _, i := range a.items {
		if i.kind == responsesbody.TypeCall {
			calls = append(calls, i)
		}
	}
	slices.SortStableFunc(calls, func(a, b *item) int { return cmp.Compare(a.at, b.at) })
	return calls
}

// takeFinal takes an item of the whole answer.
func (a *answer) takeFinal(whole responsesbody.Item) {
	switch status := loose.Scalar(whole.Members["status"]); {
	case status == "incomplete", status == "in_progress" && whole.Type == responsesbody.TypeCall:
		a.cut = true
	}
	switch whole.Type {
	case responsesbody.TypeMessage:
		_, refusal, _ := whole.Said()
		a.refusal += refusal
	case responsesbody.TypeReasoning:
		if form, parts := thoughts(whole); !a.thought() {
			a.think(&item{}, form, 0, loose.Fragment(strings.Join(parts, responsesbody.Paragraph)))
		}
	case responsesbody.TypeCall:
		a.final = append(a.final, readCall(whole))
	default:
		if whole.Unanswered() {
			a.doubted(doubtOtherTool)
		}
	}
}

// thought reports whether reasoning came in pieces.
func (a *answer) thought() bool {
	return slices.ContainsFunc(a.items, func(i *item) bool { return i.thinks != "" })
}

// compare compares the whole answer with what was streamed of it, and completes the text.
func (a *answer) compare(streamed []*item) {
	if len(streamed) > len(a.final) {
		a.doubted(doubtMissing)
	}
	for n, piece := range streamed[:min(len(streamed), len(a.final))] {
		call := &a.final[n]
		call.streamed = piece
		if differ(call.name, piece.name) || differ(call.id, piece.callID) ||
			loose.IsNull(call.arguments) && piece.given {
			a.doubted(doubtStreamed)
		}
		a.argued(piece, call.arguments)
	}
	said := responsesbody.Said(a.output)
	if rest, ok := strings.CutPrefix(said, a.text.String()); ok {
		a.speech.Add(rest)
		return
	}
	a.doubted(doubtText)
	if said != "" { // some servers leave the text out of the last event
		a.speech.Replace(said)
	}
}

// assemble makes the output of items that came in pieces, because the whole response has none.
func (a *answer) assemble() {
	items := slices.Clone(a.items)
	slices.SortStableFunc(items, func(a, b *item) int { return cmp.Compare(a.at, b.at) })
	all := true // items are whole
	for _, i := range items {
		switch {
		case i.whole != nil:
			a.output = append(a.output, *i.whole)
			a.takeFinal(*i.whole)
		case i.kind == responsesbody.TypeCall:
			a.final = append(a.final, i.call())
		default:
			a.refusal += i.refusal.String()
		}
		if all = all && i.whole != nil; i.kind == responsesbody.TypeCall {
			call := &a.final[len(a.final)-1]
			call.streamed = i
			if !i.closed {
				a.doubted(doubtOpen)
			}
		}
	}
	if all && len(items) > 0 {
		a.raw = listOf(a.output)
	}
}

// call returns a call of which only pieces came.
func (i *item) call() finalCall {
	c := finalCall{id: i.callID, name: i.name}
	if i.begun != nil && !i.given {
		c.arguments = readCall(*i.begun).arguments
	}
	return c
}

// ordinary holds the members of items that say nothing that the text and the calls do not say.
var ordinary = map[string][]string{
	responsesbody.TypeMessage: {"type", "id", "role", "status", "content"},
	responsesbody.TypeCall:    {"type", "id", "call_id", "name", "arguments", "status"},
}

// isPlain reports whether an answer is only a text and calls after it.
func isPlain(items []responsesbody.Item) bool {
	for n, item := range items {
		for name, value := range item.Members {
			if !slices.Contains(ordinary[item.Type], name) && !loose.IsNull(value) {
				return false
			}
		}
		if item.Type == responsesbody.TypeMessage && (n > 0 || !onlyText(item)) {
			return false
		}
	}
	return true
}

// onlyText reports whether all parts of a message are text.
func onlyText(message responsesbody.Item) bool {
	var parts []struct {
		Type loose.Text `json:"type"`
	}
	if json.Unmarshal(message.Members["content"], &parts) != nil {
		return false
	}
	for _, p := range parts {
		if p.Type != "output_text" {
			return false
		}
	}
	return true
}

// listOf returns items as a JSON list, or nil if the text and the calls say the same.
func listOf(items []responsesbody.Item) json.RawMessage {
	if isPlain(items) {
		return nil
	}
	list := []byte{'['}
	for n, item := range items {
		if n > 0 {
			list = append(list, ',')
		}
		list = append(list, item.Raw...)
	}
	return bytes.ToValidUTF8(append(list, ']'), []byte("\uFFFD"))
}
