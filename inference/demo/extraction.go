package demo

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"turnkeeper/inference"
	"turnkeeper/outputs"
)

// Extraction answers a question about a stored tool result: by the lines that
// hold words of the query. ok is false for a request that asks something else.
func Extraction(req inference.Request) (answer string, ok bool) {
	if len(req.Messages) != 2 {
		return "", false
	}
	prompt := outputs.Prompt{System: req.Messages[0].Text, User: req.Messages[1].Text}
	if query, text, ok := outputs.ReadSearchPrompt(prompt); ok {
		return found(query, text), true
	}
	if _, passages, ok := outputs.ReadRankPrompt(prompt); ok {
		return inOrder(passages), true
	}
	return "", false
}

// maxFound is how many lines are named at most.
const maxFound = 20

// found names the lines that hold the most words of the query.
func found(query, text string) string {
	words := wordsOf(query)
	lines, most := []string{}, 1
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		n := held(words, line)
		if n > most {
			lines, most = lines[:0], n
		}
		if n == most && len(lines) < maxFound {
			lines = append(lines, line)
		}
	}
	confidence := 0.0
	if len(lines) > 0 {
		confidence = float64(most) / float64(len(words))
	}
	return encode(map[string]any{"snippets": lines, "confidence": confidence})
}

// held is how many of the words a line holds.
func held(words []string, line string) (n int) {
	line = strings.ToLower(line)
	for _, word := range words {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}

// wordsOf are the words of a query that may tell one line from another.
func wordsOf(query string) (words []string) {
	const short = 3
	for _, word := range strings.FieldsFunc(strings.ToLower(query), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if utf8.RuneCountInString(word) >= short {
			words = append(words, word)
		}
	}
	return words
}

// inOrder picks all passages as they stand.
func inOrder(passages int) string {
	picks := []any{}
	for i := range passages {
		picks = append(picks, map[string]any{"index": i, "confidence": 0.5})
	}
	return encode(map[string]any{"picks": picks})
}

func encode(value any) string {
	data, _ := json.Marshal(value) //nolint:errchkjson // strings and numbers always marshal
	return string(data)
}
