package openai

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// What servers say of a request that is too long, in tokens. The first pattern
// that is found counts.
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

// overflowNumbers are how many tokens a server counted of a request that is too
// long for it, and how many its window has; 0: it does not say.
func overflowNumbers(body []byte, message string) (have, limit int) {
	var told struct {
		Error struct {
			Have  float64 `json:"n_prompt_tokens"`
			Limit float64 `json:"n_ctx"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &told) // llama.cpp's server; others tell in words
	have, limit = plausible(told.Error.Have), plausible(told.Error.Limit)
	if have == 0 {
		have = firstNumber(overflowHave, message)
	}
	if limit == 0 {
		limit = firstNumber(overflowLimit, message)
	}
	return have, limit
}

// maxWindow is above every window there is.
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
