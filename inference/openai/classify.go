package openai

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"turnkeeper/inference"
)

// Classify returns the error of an error response. status is the HTTP status; below 300, the
// error was in the body of an answer. Codes have precedence over text, and text about rate
// limits over text about the length of the context.
func Classify(status int, h http.Header, body []byte) *inference.Error {
	c := readErrorBody(body)
	e := &inference.Error{
		Status: status, Code: cmp.Or(c.code, c.kind), Detail: c.message, RetryAfter: retryAfter(h),
	}
	if e.RetryAfter == 0 {
		e.RetryAfter = c.retry
	}
	if _, err := strconv.Atoi(c.code); err == nil {
		e.Code = cmp.Or(c.kind, c.code) // the number only repeats the status
	}
	if status < 300 {
		status = c.status
	}
	e.Class = classOf(status, c, e)
	if status == http.StatusNotFound && itemRefused.MatchString(c.message) {
		e.Class = inference.ClassInvalid // it is the item that was not found
	}
	e.ByRequest = byRequest(status, c, e.Class)
	if e.Class == inference.ClassContextOverflow {
		e.Have, e.Limit = overflowNumbers(body, c.message)
	}
	e.Record = recordIn(status, e.Class, c.message)
	switch h.Get("X-Should-Retry") {
	case "false":
		e.NoRetry = true
	case "true":
		if !e.Class.Transient() {
			e.Class = inference.ClassOverloaded
		}
	}
	return e
}

func classOf(status int, c errorBody, e *inference.Error) inference.Class {
	if status == http.StatusPaymentRequired {
		if e.RetryAfter > 0 {
			return inference.ClassRateLimited
		}
		return inference.ClassQuota
	}
	if c.flagged || strings.EqualFold(c.code, "invalid_prompt") && promptFlagged.MatchString(c.message) {
		return inference.ClassRefused
	}
	for _, name := range []string{c.code, c.kind} {
		if class, ok := certain[strings.ToLower(name)]; ok {
			return class
		}
	}
	if class, ok := byText(status, c.message); ok {
		return class
	}
	if status >= 300 {
		return byStatus(status)
	}
	for _, name := range []string{c.code, c.kind} {
		if class, ok := likely[strings.ToLower(name)]; ok {
			return class
		}
	}
	return inference.ClassOverloaded // an unknown error without a status may be transient
}

// byRequest reports whether the request itself may have caused a failure of the service. An error
// that says that the service is overloaded was not caused by the request, whatever its status.
func byRequest(status int, c errorBody, class inference.Class) bool {
	switch class {
	case inference.ClassAuth:
		return status == http.StatusUnauthorized || status == http.StatusForbidden
	case inference.ClassNotFound:
		return status == http.StatusNotFound
	case inference.ClassOverloaded:
		says := certain[strings.ToLower(c.code)] == class || certain[strings.ToLower(c.kind)] == class
		return !says && slices.Contains([]int{0, 500, 502, 504, 520, 524}, status)
	default:
		return false
	}
}

// certain maps codes and types that have precedence over the status.
var certain = map[string]inference.Class{
	"insufficient_quota":         inference.ClassQuota,
	"insufficient_balance":       inference.ClassQuota,
	"insufficient_credits":       inference.ClassQuota,
	"billing_hard_limit_reached": inference.ClassQuota,
	"billing_not_active":         inference.ClassQuota,
	"billing_error":              inference.ClassQuota,

	"context_length_exceeded":       inference.ClassContextOverflow,
	"exceed_context_size_error":     inference.ClassContextOverflow,
	"model_context_window_exceeded": inference.ClassContextOverflow,
	"prompt_too_long":               inference.ClassContextOverflow,
	"request_too_large":             inference.ClassContextOverflow,

	"content_filter": inference.ClassRefused,
	"bio_policy":     inference.ClassRefused,
	"cyber_policy":   inference.ClassRefused,

	"misalignment_policy_violation":  inference.ClassRefused,
	"image_content_policy_violation": inference.ClassRefused,

	"content_policy_violation":     inference.ClassRefused,
	"responsibleaipolicyviolation": inference.ClassRefused,
	"tool_use_failed":              inference.ClassBadOutput,
	"output_parse_failed":          inference.ClassBadOutput,
	"json_validate_failed":         inference.ClassBadOutput,
	"invalid_api_key":              inference.ClassAuth,
	"authentication_error":         inference.ClassAuth,
	"permission_error":             inference.ClassAuth,
	"model_not_found":              inference.ClassNotFound,
	"rate_limit_exceeded":          inference.ClassRateLimited,
	"rate_limit_error":             inference.ClassRateLimited,
	"too_many_requests":            inference.ClassRateLimited,
	"overloaded_error":             inference.ClassOverloaded,
	"server_is_overloaded":         inference.ClassOverloaded,
	"slow_down":                    inference.ClassOverloaded,
}

// likely maps codes and types that are used only if there is no status.
var likely = map[string]inference.Class{
	"requests":              inference.ClassRateLimited,
	"tokens":                inference.ClassRateLimited,
	"resource_exhausted":    inference.ClassRateLimited,
	"timeout":               inference.ClassTransport,
	"timeout_error":         inference.ClassTransport,
	"deadline_exceeded":     inference.ClassTransport,
	"invalid_request_error": inference.ClassInvalid,
	"badrequesterror":       inference.ClassInvalid,
	"invalid_argument":      inference.ClassInvalid,
	"failed_precondition":   inference.ClassInvalid,
	"not_found_error":       inference.ClassNotFound,
	"not_found":             inference.ClassNotFound,
	"unauthenticated":       inference.ClassAuth,
	"permission_denied":     inference.ClassAuth,

	// Of a response that has failed.
	"invalid_prompt":               inference.ClassInvalid,
	"data_residency_mismatch":      inference.ClassInvalid,
	"vector_store_timeout":         inference.ClassTransport,
	"invalid_image":                inference.ClassInvalid,
	"invalid_image_format":         inference.ClassInvalid,
	"invalid_base64_image":         inference.ClassInvalid,
	"invalid_image_url":            inference.ClassInvalid,
	"invalid_image_mode":           inference.ClassInvalid,
	"image_too_large":              inference.ClassInvalid,
	"image_too_small":              inference.ClassInvalid,
	"image_parse_error":            inference.ClassInvalid,
	"image_file_too_large":         inference.ClassInvalid,
	"image_file_not_found":         inference.ClassInvalid,
	"unsupported_image_media_type": inference.ClassInvalid,
	"empty_image_file":             inference.ClassInvalid,
	"failed_to_download_image":     inference.ClassInvalid,
}

func byStatus(status int) inference.Class {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return inference.ClassAuth
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return inference.ClassNotFound
	case http.StatusRequestTimeout, http.StatusTooEarly:
		return inference.ClassTransport
	case http.StatusConflict:
		return inference.ClassOverloaded
	case http.StatusRequestEntityTooLarge:
		return inference.ClassContextOverflow
	case http.StatusTooManyRequests:
		return inference.ClassRateLimited
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return inference.ClassInvalid
	}
	if status >= 500 {
		return inference.ClassOverloaded
	}
	return inference.ClassInvalid
}

var (
	// A rate limit of tokens is not an overflow.
	throttled = regexp.MustCompile(
		`(?i)throttl|rate.?limit|too many requests|tokens? per (minute|day|hour)|\b[tr]p[md]\b|quota|service unavailable|overloaded`)

	overflow = regexp.MustCompile(`(?i)` + strings.Join([]string{
		`prompt is too long`,
		`prompt too long`,
		`input is too long for requested model`,
		`exceeds? (the |this |our )?(model'?s? )?(maximum |max |available |allowed )?(context|input|prompt|token)s?([ _-](window|length|size|limit))`,
		`exceeded (the )?(max(imum)? )?context (window|length|size)`,
		`exceeded model token limit`,
		`maximum context length is \d+`,
		`maximum prompt length is \d+`,
		`input token count.*exceeds the maximum`,
		`input length .*exceeds`,
		`context[ _-](window|length|size)[ _-]?(is )?exceeded`,
		`context window exceeds limit`,
		`exceeds the limit of \d+ tokens?`,
		`(greater|longer) than the (model'?s )?(maximum )?context length`,
		`too large for model with \d+ maximum context length`,
		`reduce the length of the (messages|prompt|input)`,
		`too many (input |prompt )?tokens`,
		`token limit exceeded`,
	}, "|"))

	// Errors of servers that could not parse their model's output.
	unreadable = regexp.MustCompile(`(?i)` + strings.Join([]string{
		`error parsing tool call`,
		`does not match the expected peg`,
		`failed to parse (the )?(tool call|input at pos|model output|output|generated)`,
		`failed to (call a function|generate a (valid )?tool call)`,
		`tool call validation failed`,
		`invalid tool call (generated|arguments)`,
	}, "|"))
	unreadableJSON = regexp.MustCompile(`(?i)^(invalid character .+|unexpected end of json input)`)

	// OpenAI's code invalid_prompt. Others use it for any request that is wrong.
	promptFlagged = regexp.MustCompile(`(?i)\bflagged\b|\bviolat`)

	wrongKey = regexp.MustCompile(
		`(?i)api.?key (not valid|is invalid|expired)|(invalid|incorrect|missing) api.?key|api_key_invalid|user location is not supported`)
	noModel = regexp.MustCompile(
		`(?i)\bmodel\b.{0,80}(not found|does not exist|is not a valid model|not exist)|(not a valid|unknown|no such) model\b`)
	outOfFunds = regexp.MustCompile(`(?i)insufficient (balance|credits|funds)|credit balance is too low`)
)

// Texts of servers that refuse what a request repeats of earlier answers.
var (
	reasoningMissing = regexp.MustCompile(
		`(?i)(reasoning|thinking|thought).{0,80}\b(passed back|provided|included|present|required|missing|empty|sent back)\b|` +
			`\b(missing|requires?|expected|lacks?|without|no)\b.{0,60}reasoning`)
	// Of the Responses API: an item is missing that belongs to another one, is not stored, or cannot be decrypted.
	itemRefused = regexp.MustCompile(`(?i)\bitem\b.{0,80}\bprovided without its required\b|` +
		`\bitem with id '?(rs|msg|fc)_|encrypted.?content|reasoning (input )?items`)
	signatureMissing = regexp.MustCompile(`(?i)\b(missing|without|lacks?)\b.{0,20}thought_?signature`)
	// Anthropic refuses empty texts, which its models write, in answers that are sent back as they came.
	reasoningRefused = regexp.MustCompile(
		`(?i)signature|reasoning|thinking|thought|text content blocks must (be non-empty|contain non-whitespace)`)
	callsRefused = regexp.MustCompile(
		`(?i)tool[_ ]?(call|use|result|response|message)|function[_ ]?(call|response|name)|role.{0,12}tool\b|messages?[\[.]\d+|` +
			`message at (index|position)|call_id|duplicate .{0,20}id`)
	templateFailed = regexp.MustCompile(`(?i)jinja|minja|chat.?template|raise_exception|roles must alternate`)
)

// recordIn returns what of the conversation's record a request was refused for, by the server's words.
func recordIn(status int, class inference.Class, message string) inference.RecordPart {
	switch {
	case class == inference.ClassOverloaded && status == http.StatusInternalServerError &&
		templateFailed.MatchString(message):
		return inference.RecordCalls
	case class != inference.ClassInvalid:
		return ""
	case itemRefused.MatchString(message):
		return inference.RecordReasoning
	case signatureMissing.MatchString(message):
		return inference.RecordCalls // only calls can lack one
	case reasoningMissing.MatchString(message):
		return inference.RecordLacksReasoning
	case reasoningRefused.MatchString(message):
		return inference.RecordReasoning
	case callsRefused.MatchString(message), templateFailed.MatchString(message):
		return inference.RecordCalls
	}
	return ""
}

// byText classifies an error by its message, if the status is ambiguous.
func byText(status int, message string) (inference.Class, bool) {
	if status == http.StatusUnauthorized || status == http.StatusForbidden ||
		status == http.StatusTooManyRequests || status == http.StatusNotFound {
		return "", false
	}
	switch {
	case (status == 0 || status == 500) && (unreadable.MatchString(message) || unreadableJSON.MatchString(message)):
		return inference.ClassBadOutput, true
	case throttled.MatchString(message):
		if status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge {
			return inference.ClassRateLimited, true
		}
		return "", false
	case overflow.MatchString(message):
		return inference.ClassContextOverflow, true
	case status == 0 || status >= 500:
		return "", false
	case wrongKey.MatchString(message):
		return inference.ClassAuth, true
	case outOfFunds.MatchString(message):
		return inference.ClassQuota, true
	case noModel.MatchString(message):
		return inference.ClassNotFound, true
	}
	return "", false
}
