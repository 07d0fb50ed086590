// Package askform checks and formats answers to asks. It validates answers by their JSON Schema, chooses the form field
// for an answer, and compares arguments that a person changed.
package askform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"turnkeeper/internal/arguments"
	"turnkeeper/tools"
)

// Arguments validates arguments by a schema (empty: any object) and returns their canonical form. It refuses an empty
// text: that is a mistake, not the wish to run a call without arguments.
func Arguments(schema, text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("they are empty; write {} for a call without arguments")
	}
	compiled, err := tools.CompileSchema(json.RawMessage(cmp.Or(schema, `{"type":"object"}`)))
	if err != nil {
		return "", err
	}
	args, fault := tools.CheckArguments(compiled, text)
	if fault != "" {
		return "", errors.New(fault)
	}
	return args.Canonical, nil
}

// Answer validates an answer by a schema (empty: any value) and returns it without space between its tokens.
func Answer(schema, text string) (string, error) {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(text)) != nil {
		return "", errors.New("it is not JSON")
	}
	wrapped := fmt.Sprintf(`{"type":"object","properties":{"answer":%s}}`, cmp.Or(schema, "true"))
	if _, err := Arguments(wrapped, `{"answer":`+compact.String()+`}`); err != nil {
		return "", err
	}
	return compact.String(), nil
}

// Pretty formats JSON with one line for each value.
func Pretty(text string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return text
	}
	return b.String()
}

// Diff compares two JSON texts with sorted keys, line by line, as Visible shows them. Each line begins with "- " (only
// in the first), "+ " (only in the second) or two spaces.
func Diff(from, to string) []string {
	return diffLines(strings.Split(Visible(sorted(from)), "\n"), strings.Split(Visible(sorted(to)), "\n"))
}

// sorted returns JSON in canonical form, so that a diff shows changed values only.
func sorted(text string) string {
	value, err := arguments.Parse(text)
	if err != nil {
		return text
	}
	return value.Canonical()
}

// diffLines compares by a longest common subsequence.
func diffLines(from, to []string) (diff []string) {
	const tooLong = 2000 // lines; then everything counts as changed
	common := make([][]int, len(from)+1)
	if len(from) > tooLong || len(to) > tooLong {
		for _, line := range from {
			diff = append(diff, "- "+line)
		}
		for _, line := range to {
			diff = append(diff, "+ "+line)
		}
		return diff
	}
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i := len(from) - 1; i >= 0; i-- {
		for j := len(to) - 1; j >= 0; j-- {
			if from[i] == to[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(from) || j < len(to); {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			diff = append(diff, "  "+from[i])
			i, j = i+1, j+1
		case i < len(from) && (j == len(to) || common[i+1][j] >= common[i][j+1]):
			diff = append(diff, "- "+from[i])
			i++
		default:
			diff = append(diff, "+ "+to[j])
			j++
		}
	}
	return diff
}

// An Input is the type of a form field.
type Input string

// The inputs.
const (
	Text   Input = "text"   // a string
	Number Input = "number" // a number
	Choice Input = "choice" // one of Options
	JSON   Input = "json"   // anything else
)

// A Field is the form field for an answer.
type Field struct {
	Input   Input
	Label   string   // from the schema; may be empty
	Options []Option // of Choice
	Whole   bool     // of Number: a whole number
}

// An Option is one of the answers to choose from.
type Option struct{ Value, Label string } // Value is JSON

// FieldOf returns the field for answers to a schema: a specific one for strings, numbers, booleans and enumerations,
// else one that takes JSON.
func FieldOf(schema string) Field {
	var s struct {
		Type        string
		Enum        []json.RawMessage
		Title       string
		Description string
	}
	if json.Unmarshal([]byte(schema), &s) != nil { // no object, or several types
		return Field{Input: JSON}
	}
	f := Field{Input: JSON, Label: cmp.Or(s.Title, s.Description)}
	switch {
	case len(s.Enum) > 0:
		f.Input = Choice
		for _, value := range s.Enum {
			f.Options = append(f.Options, optionOf(value))
		}
	case s.Type == "boolean":
		f.Input, f.Options = Choice, []Option{{"true", "yes"}, {"false", "no"}}
	case s.Type == "string":
		f.Input = Text
	case s.Type == "number", s.Type == "integer":
		f.Input, f.Whole = Number, s.Type == "integer"
	}
	return f
}

func optionOf(value json.RawMessage) Option {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return Option{}
	}
	label := b.String()
	_ = json.Unmarshal(value, &label) // the text of a string
	return Option{Escaped(b.String()), label}
}

// Value converts the text that a person entered into the field to JSON.
func (f Field) Value(entered string) (string, error) {
	switch f.Input {
	case Text:
		text, err := json.Marshal(entered)
		return string(text), err
	case Number:
		entered = strings.TrimSpace(entered)
		if _, ok := new(big.Float).SetString(entered); !ok || !json.Valid([]byte(entered)) {
			return "", fmt.Errorf("%.40q is not a number", entered)
		}
		return entered, nil
	case Choice, JSON:
	}
	return entered, nil
}
