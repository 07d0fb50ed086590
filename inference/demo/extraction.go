package demo

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"turnkeeper/inference"
	"turnkeeper/outputs"
)

// Extraction answers a prompt for an extraction with the lines that contain words of the query.
// ok is false for any other request.
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

// maxFound is the maximum number of lines in an answer.
const maxFound = 20

// found returns the lines that contain the most words of the query.
func found(query, text string) string {
	words := wordsOf(query)
	lines, highest := []string{}, 1
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		n := count(words, line)
		if n > highest {
			lines, highest = lines[:0], n
		}
		if n == highest && len(lines) < maxFound {
			lines = append(lines, line)
		}
	}
	confidence := 0.0
	if len(lines) > 0 {
		confidence = float64(highest) / float64(len(words))
	}
	return encode(map[string]any{"snippets": lines, "confidence": confidence})
}

// count returns the number of words that a line contains.
func count(words []string, line string) (n int) {
	line = strings.ToLower(line)
	for _, word := range words {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}

// wordsOf returns the words of a query, without very short ones.
func wordsOf(query string) (words []string) {
	const short = 3
	for _, word := range strings.FieldsFunc(strings.ToLower(query), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		if utf8.RuneCountInString(word) >= short {
			words = append(words, word)
		}
	}
	return words
}

// inOrder picks all passages in their order.
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
