package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/internal/jsonlimit"
)

// ErrorMessage returns the message of an error body of any known form, or "".
func ErrorMessage(body []byte) string { return readErrorBody(body).message }

// An errorBody is a decoded error body of any known form: OpenAI's error object, an error
// string, the flat objects of vLLM and FastAPI, Gemini's array, HTML, or plain text.
type errorBody struct {
	code    string // the provider's code; may be empty
	kind    string // its type, or Gemini's status
	message string
	status  int           // HTTP status in the body; 0: none
	retry   time.Duration // delay in the body; 0: none
	flagged bool          // moderation refused the input
}

// maxErrorText is the maximum number of bytes of an error that is not decoded.
const maxErrorText = 64 << 10

func readErrorBody(body []byte) errorBody {
	body = bytes.TrimSpace(body)
	if jsonlimit.ModelError.Check(body) != nil {
		return errorBody{message: plain(body[:min(len(body), maxErrorText)])}
	}
	var array []json.RawMessage
	if json.Unmarshal(body, &array) == nil && len(array) > 0 {
		body = array[0]
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return errorBody{message: plain(body)}
	}
	c := readObject(object)
	if inner := object["error"]; loose.IsObject(inner) {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(inner, &members)
		c = c.merged(readObject(members))
	} else if s := loose.Scalar(inner); s != "" && s != "true" {
		c.message = s
	}
	if c.message == "" {
		c.message = string(body)
	}
	return c
}

// readObject decodes the members of an error object, nested or flat.
func readObject(o map[string]json.RawMessage) errorBody {
	c := errorBody{
		code: loose.Scalar(o["code"]), kind: cmp.Or(loose.Scalar(o["type"]), loose.Scalar(o["status"])),
		message: cmp.Or(loose.Scalar(o["message"]), detailText(o["detail"])),
	}
	if n, err := strconv.Atoi(cmp.Or(c.code, loose.Scalar(o["status"]))); err == nil && n >= 400 && n < 600 {
		c.status = n
	}
	var meta struct {
		Raw     json.RawMessage `json:"raw"`
		Reasons json.RawMessage `json:"reasons"`
		Flagged loose.Text      `json:"flagged_input"`
	}
	if loose.IsObject(o["metadata"]) {
		_ = json.Unmarshal(o["metadata"], &meta) // members of another type stay empty
		if upstream := cmp.Or(loose.Scalar(meta.Raw), string(meta.Raw)); !loose.IsNull(meta.Raw) {
			c.message += ": " + upstream
		}
		c.flagged = !loose.IsNull(meta.Reasons) || meta.Flagged != ""
	}
	var details []struct {
		RetryDelay loose.Text `json:"retryDelay"`
	}
	if json.Unmarshal(o["details"], &details) == nil {
		for _, d := range details {
			if delay, err := time.ParseDuration(string(d.RetryDelay)); err == nil && delay > 0 {
				c.retry = delay
			}
		}
	}
	return c
}

// merged returns the inner object, with missing members from the outer one.
func (c errorBody) merged(inner errorBody) errorBody {
	inner.code = cmp.Or(inner.code, c.code)
	if c.kind != "error" { // Anthropic's outer object says no more
		inner.kind = cmp.Or(inner.kind, c.kind)
	}
	inner.message = cmp.Or(inner.message, c.message)
	if inner.status == 0 {
		inner.status = c.status
	}
	return inner
}

// detailText returns FastAPI's detail: a text, or a list of validation errors.
func detailText(data json.RawMessage) string {
	if s := loose.Scalar(data); s != "" {
		return s
	}
	var items []struct {
		Message loose.Text `json:"msg"`
	}
	if json.Unmarshal(data, &items) != nil {
		return ""
	}
	var messages []string
	for _, item := range items {
		messages = append(messages, string(item.Message))
	}
	return strings.Join(messages, "; ")
}

var (
	htmlTitle  = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	htmlHidden = regexp.MustCompile(`(?is)<(script|style)\b.*?</(script|style)>`)
	htmlTag    = regexp.MustCompile(`(?s)<[^>]*>`)
)

// plain returns the readable text of a body that is not JSON.
func plain(body []byte) string {
	if len(body) > maxDetailSource {
		body = body[:maxDetailSource]
	}
	s := string(body)
	if !strings.HasPrefix(s, "<") {
		return s
	}
	if m := htmlTitle.FindStringSubmatch(s); m != nil {
		return "an HTML page: " + strings.TrimSpace(html.UnescapeString(m[1]))
	}
	s = htmlTag.ReplaceAllString(htmlHidden.ReplaceAllString(s, " "), " ")
	return "an HTML page: " + strings.TrimSpace(html.UnescapeString(s))
}

// maxRetryAfter is the maximum that retryAfter returns.
const maxRetryAfter = 7 * 24 * time.Hour

// retryAfter returns the delay that the headers ask for, in milliseconds, seconds or as a
// date; 0 if there is none, or if it is in the past.
func retryAfter(h http.Header) time.Duration {
	for _, form := range []struct {
		header string
		unit   time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		value := strings.TrimSpace(h.Get(form.header))
		if n, err := strconv.ParseFloat(value, 64); err == nil || math.IsInf(n, 1) {
			if !(n > 0) {
				continue
			}
			return time.Duration(min(n*float64(form.unit), float64(maxRetryAfter)))
		}
		if at, err := http.ParseTime(value); err == nil {
			return min(max(0, time.Until(at)), maxRetryAfter)
		}
	}
	return 0
}
