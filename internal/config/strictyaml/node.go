package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind is the kind of a Node.
type Kind string

// The kinds, worded for messages.
const (
	Text   Kind = "text"
	Number Kind = "a number"
	Bool   Kind = "true or false"
	Null   Kind = "nothing"
	List   Kind = "a list"
	Map    Kind = "a mapping"
)

// A Node is one value of a document.
type Node struct {
	Kind   Kind
	Line   int     // first line, from 1
	Value  string  // Text, Number, Bool: the text without quotes
	Items  []*Node // List
	Fields []Field // Map, in the order of the file; keys may repeat
}

// A Field is one key of a mapping.
type Field struct {
	Key   string
	Line  int
	Value *Node
}

// Scalar reports whether the node is text, a number or a bool.
func (n *Node) Scalar() bool { return n.Kind == Text || n.Kind == Number || n.Kind == Bool }

// Get returns the value of a mapping's key; nil: no such key.
func (n *Node) Get(key string) *Node {
	for _, field := range n.Fields {
		if field.Key == key {
			return field.Value
		}
	}
	return nil
}

// AsText returns the node as text. Errors of the As methods have no subject: "must be text, not a list".
func (n *Node) AsText() (string, error) {
	switch n.Kind {
	case Text:
		if strings.ContainsRune(n.Value, 0) || !utf8.ValidString(n.Value) {
			return "", errors.New("must be valid UTF-8 text without NUL")
		}
		return n.Value, nil
	case Number, Bool:
		return "", fmt.Errorf("must be text, not %s: put it in quotes", n.Kind)
	default:
		return "", n.not(Text)
	}
}

// AsInt returns the node as an integer.
func (n *Node) AsInt() (int64, error) {
	if n.Kind != Number {
		return 0, n.not("a whole number")
	}
	return ParseInt(n.Value)
}

// AsFloat returns the node as a number.
func (n *Node) AsFloat() (float64, error) {
	if n.Kind != Number {
		return 0, n.not(Number)
	}
	return ParseFloat(n.Value)
}

// AsBool returns the node as a bool.
func (n *Node) AsBool() (bool, error) {
	if n.Kind != Bool {
		return false, n.not(Bool)
	}
	return ParseBool(n.Value)
}

// AsDuration returns the node as a duration: a text such as 90s, 2m or 1h30m, or a whole number of
// seconds.
func (n *Node) AsDuration() (time.Duration, error) {
	if n.Kind != Number && n.Kind != Text {
		return 0, n.not("a duration such as 90s or 2m")
	}
	return ParseDuration(n.Value)
}

// AsTexts returns the node as a list of texts. The error may be about one of its items.
func (n *Node) AsTexts() ([]string, error) {
	if n.Kind != List {
		return nil, n.not("a list such as [one, two]")
	}
	texts := make([]string, 0, len(n.Items))
	for i, item := range n.Items {
		text, err := item.AsText()
		if err != nil {
			return nil, fmt.Errorf("must be a list of texts: item %d %w", i+1, err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func (n *Node) not(wanted Kind) error { return fmt.Errorf("must be %s, not %s", wanted, n.Kind) }

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// ParseInt parses a plain decimal integer.
func ParseInt(text string) (int64, error) {
	if !decimal.MatchString(text) {
		return 0, errors.New("must be a whole number such as 12")
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errors.New("is too large")
	}
	return value, nil
}

var fraction = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// ParseFloat parses a plain decimal number.
func ParseFloat(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !fraction.MatchString(text) {
		return 0, errors.New("must be a number such as 0.7")
	}
	return value, nil
}

// ParseBool parses true or false.
func ParseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, errors.New("must be true or false")
	}
	return text == "true", nil
}

// ParseDuration parses a duration such as 90s or 2m; a bare integer is seconds.
func ParseDuration(text string) (time.Duration, error) {
	if decimal.MatchString(text) {
		text += "s"
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("must be a duration such as 90s, 2m or 1h30m (a bare number is seconds)")
	}
	return value, nil
}

// FormatDuration formats a duration as settings are written: in whole hours or seconds if possible.
func FormatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	default:
		return d.String()
	}
}

// Plain returns the node as a value of encoding/json: string, json.Number, bool, nil, []any or
// map[string]any. The last of repeated keys wins.
func (n *Node) Plain() any {
	switch n.Kind {
	case Number:
		return json.Number(n.Value)
	case Bool:
		return n.Value == "true"
	case Null:
		return nil
	case List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = item.Plain()
		}
		return list
	case Map:
		fields := map[string]any{}
		for _, field := range n.Fields {
			fields[field.Key] = field.Value.Plain()
		}
		return fields
	default:
		return n.Value
	}
}
