package openai

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// Patterns for the numbers of tokens in servers' messages about a request that is too long.
// The first pattern that matches is used.
var (
	overflowHave = compiled(
		`\((?:about )?([\d,]+) (?:in|of) (?:the |your )?(?:messages|text input|prompt|input)`,
		`(?:resulted in|your request has|prompt contains|you requested(?: about)?) ([\d,]+) (?:input )?tokens`,
		`input token count(?: of)? \(?([\d,]+)`,
		`([\d,]+) tokens > [\d,]+ maximum`,
		`request \(([\d,]+) tokens\) exceeds`,
	)
	overflowLimit = compiled(
		`maximum (?:context|prompt|input) length (?:is|of) ([\d,]+)`,
		`with ([\d,]+) maximum context length`,
		`[\d,]+ tokens > ([\d,]+) maximum`,
		`maximum number of tokens allowed \(?([\d,]+)`,
		`configured limit of ([\d,]+) tokens`,
		`available context size \(([\d,]+)`,
		`context (?:window|length|size) (?:of|is) ([\d,]+)`,
	)
)

func compiled(patterns ...string) (all []*regexp.Regexp) {
	for _, p := range patterns {
		all = append(all, regexp.MustCompile(`(?i)`+p))
	}
	return all
}

// overflowNumbers returns the server's count of a request that is too long, and its limit, in
// tokens. 0: not reported.
func overflowNumbers(body []byte, message string) (have, limit int) {
	var reported struct {
		Error struct {
			Have  float64 `json:"n_prompt_tokens"`
			Limit float64 `json:"n_ctx"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &reported) // by llama.cpp's server; other servers use text
	have, limit = plausible(reported.Error.Have), plausible(reported.Error.Limit)
	if have == 0 {
		have = firstNumber(overflowHave, message)
	}
	if limit == 0 {
		limit = firstNumber(overflowLimit, message)
	}
	return have, limit
}

// maxWindow is larger than any context window.
const maxWindow = 1 << 30

func plausible(n float64) int {
	if n >= 1 && n < maxWindow {
		return int(n)
	}
	return 0
}

func firstNumber(patterns []*regexp.Regexp, message string) int {
	for _, p := range patterns {
		if m := p.FindStringSubmatch(message); m != nil {
			n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
			if err == nil && plausible(n) > 0 {
				return int(n)
			}
		}
	}
	return 0
}
