package arguments

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"turnkeeper/internal/jsonlimit"
)

// A Schema is a compiled JSON Schema of a tool's arguments. It is safe for
// concurrent use.
type Schema struct {
	root     *jsonschema.Schema
	exact    *exact
	messages func() messages

	rounded number                          // see Rounded
	steps   map[*jsonschema.Schema]*big.Rat // multipleOf
	refs    map[*jsonschema.Schema]*jsonschema.Schema
}

func compileSchema(parameters json.RawMessage) (*Schema, error) {
	if len(parameters) == 0 {
		return nil, fmt.Errorf("the schema of the parameters is missing")
	}
	switch err := jsonlimit.ToolSchema.Check(parameters); {
	case isLimit(err):
		return nil, fmt.Errorf("the schema of the parameters is too large: %w", err)
	case err != nil:
		return nil, fmt.Errorf("the schema of the parameters is not valid JSON")
	}
	keywords, err := parseSchema(string(parameters))
	if err != nil {
		return nil, err
	}
	root := &jsonschema.Schema{}
	if err := jsonlimit.ToolSchema.Unmarshal(parameters, root); err != nil {
		return nil, fmt.Errorf("the schema of the parameters cannot be read: a keyword has a value of the wrong type")
	}
	if root.Type != "object" {
		return nil, fmt.Errorf(`the schema of the parameters must be of "type": "object"`)
	}
	refs, err := checkRefs(root)
	if err != nil {
		return nil, err
	}
	root.Schema = strings.TrimSuffix(root.Schema, "#")
	if root.Schema == draft7 || root.Schema == draft7Secure {
		root.Schema += "#" // the validator knows draft 7 only with the #
	}
	refs.relax()
	nodes, err := numbersOf(root, keywords)
	if err != nil {
		return nil, err
	}
	exact, err := newExact(root, keywords)
	if err != nil {
		return nil, err
	}
	if err := exact.whole.Validate(map[string]any{}); err != nil && strings.Contains(err.Error(),
		"cannot validate version") {
		return nil, fmt.Errorf("the schema of the parameters is of draft %s; use draft 2020-12 or draft 7", root.Schema)
	}
	s := &Schema{root: root, exact: exact, steps: map[*jsonschema.Schema]*big.Rat{}, refs: refs.targets()}
	for _, n := range nodes {
		if n.step != nil {
			s.steps[n.Schema] = n.step
		}
		mapNumbers([]any{n.enum, n.constant}, func(number number) any {
			if number.decimal().mayBeRounded() {
				s.rounded = number
			}
			return nil
		})
	}
	s.messages = sync.OnceValue(func() messages { return messagesOf(root, keywords) })
	return s, nil
}

// Rounded returns a number of an enum or const that may be another one in the text that the schema was read from, if
// its numbers were floats on the way: a number of more than 15 digits. Empty: there is none.
func (s *Schema) Rounded() string { return string(s.rounded) }

// parseSchema parses the text of a schema. Unlike arguments, it may have a NUL character, for example in a pattern.
func parseSchema(text string) (map[string]any, error) {
	p := &parser{text: text, room: MaxDepth, nul: true}
	value, err := p.whole()
	if err != nil {
		return nil, fmt.Errorf("the schema of the parameters cannot be read: %w", err)
	}
	keywords, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf(`the schema of the parameters must be of "type": "object"`)
	}
	return keywords, nil
}

// messages say what is wrong with arguments that a schema refuses. They are the validator's, for floats.
type messages struct {
	whole   *jsonschema.Resolved // nil: none
	partial *jsonschema.Resolved // for each property alone; nil: none
}

func messagesOf(root *jsonschema.Schema, keywords map[string]any) (m messages) {
	root = root.CloneSchemas()
	nodes, err := numbersOf(root, keywords)
	if err != nil { // cannot happen: the same schema was compiled
		return m
	}
	for _, n := range nodes {
		if n.step != nil && !n.step.IsInt() {
			n.MultipleOf = nil // offStep says it
		}
		if n.enum != nil {
			n.Enum = mapNumbers(n.enum, readable).([]any)
		}
		if n.Const != nil {
			constant := mapNumbers(n.constant, readable)
			n.Const = &constant
		}
	}
	m.partial = partialOf(root)
	m.whole, _ = root.Resolve(nil)
	return m
}

// readable returns a number with all of its digits for a message.
func readable(n number) any { return json.Number(n) }

func isLimit(err error) bool {
	_, ok := errors.AsType[*jsonlimit.LimitError](err)
	return ok
}

const (
	draft7       = "http://json-schema.org/draft-07/schema"
	draft7Secure = "https://json-schema.org/draft-07/schema"
)

// partialOf returns the schema without the keywords that relate properties to
// each other, to validate each property alone. nil: it does not compile.
func partialOf(root *jsonschema.Schema) *jsonschema.Resolved {
	partial := root.CloneSchemas()
	partial.Required, partial.MinProperties, partial.AdditionalProperties = nil, nil, nil
	partial.UnevaluatedProperties, partial.DependentRequired, partial.DependentSchemas = nil, nil, nil
	partial.DependencyStrings, partial.DependencySchemas = nil, nil
	partial.AllOf, partial.AnyOf, partial.OneOf, partial.Not = nil, nil, nil, nil
	partial.If, partial.Then, partial.Else = nil, nil, nil
	resolved, err := partial.Resolve(nil)
	if err != nil {
		return nil
	}
	return resolved
}

// required returns the quoted names of the required properties.
func (s *Schema) required() string {
	return quoteAll(s.root.Required)
}

// problems returns the faults of the arguments, at most maxProblems and a count of
// the rest. Empty: the arguments are valid.
func (s *Schema) problems(args map[string]any) []string {
	if found := s.otherCase([]*jsonschema.Schema{s.root}, args); found != "" {
		return []string{found}
	}
	if s.exact.accepts(args) {
		return nil
	}
	var found []string
	if missing := s.missing(args); len(missing) > 0 {
		found = append(found, "missing "+quoteAll(missing))
	}
	if extra := s.unexpected(args); len(extra) > 0 {
		found = append(found, "unexpected "+quoteAll(extra))
	}
	for _, name := range s.exact.refused(args) {
		found = append(found, s.message(s.messages().partial, map[string]any{name: args[name]},
			strconv.Quote(clip(name, maxKeyChars))+" does"))
	}
	if len(found) == 0 {
		found = []string{s.message(s.messages().whole, args, "they do")}
	}
	if len(found) > maxProblems {
		found = append(found[:maxProblems], fmt.Sprintf("and %d more", len(found)-maxProblems))
	}
	return found
}

// message says what is wrong with arguments that the schema refuses. subject begins a sentence that goes on with "not".
func (s *Schema) message(validator *jsonschema.Resolved, args map[string]any, subject string) string {
	plain, _ := Value{args}.Plain()
	if validator != nil {
		if err := validator.Validate(plain); err != nil {
			return explain(err) + s.holdsJSON(args)
		}
	}
	if off := s.offStep(s.root, args, ""); off != "" {
		return off
	}
	return subject + " not fit the schema; numbers are compared with all their digits"
}

// holdsJSON says of one argument that it is a text that holds the JSON which the schema wants in its place.
func (s *Schema) holdsJSON(args map[string]any) string {
	decoded := coercer{refs: s.refs, decodes: true}
	if decoded.coerce(s.root, mapNumbers(args, func(n number) any { return n }), 1); !decoded.coerced {
		return ""
	}
	return "; write the array or object itself, not a text that holds it as JSON"
}

const maxProblems = 10

func (s *Schema) missing(args map[string]any) []string {
	var names []string
	for _, name := range s.root.Required {
		if _, ok := args[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

func (s *Schema) unexpected(args map[string]any) []string {
	closed := s.root.AdditionalProperties != nil && s.root.AdditionalProperties.Not != nil
	if !closed || len(s.root.PatternProperties) > 0 {
		return nil
	}
	var names []string
	for name := range args {
		if _, ok := s.root.Properties[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var (
	schemaStep = regexp.MustCompile(`^validating ([^:\s]+): `)
	typeFault  = regexp.MustCompile(`(?s)^type: .* has type ("[a-z]+"), want (one of )?("[^"]*")$`)
	wholeRatio = regexp.MustCompile(`\b(\d+)(/1|\.0{6})\b`)
	stepNames  = strings.NewReplacer("/properties/", ".", "/items", "[]", "/additionalProperties", ".*")
)

// explain rewrites the validator's error for the model: it names the property
// where the validator names the path of a schema.
func explain(err error) string {
	text, path := err.Error(), ""
	for {
		step := schemaStep.FindStringSubmatch(text)
		if step == nil {
			break
		}
		text, path = text[len(step[0]):], step[1]
	}
	text, _, _ = strings.Cut(text, "\n")
	if m := typeFault.FindStringSubmatch(text); m != nil {
		text = "is of type " + m[1] + ", it must be " + m[2] + m[3]
	}
	text = wholeRatio.ReplaceAllString(text, "$1")
	if path == "root" {
		return clip(text, maxProblemChars)
	}
	return fmt.Sprintf("%q: %s", clip(strings.TrimPrefix(stepNames.Replace(path), "."), maxKeyChars),
		clip(text, maxProblemChars))
}

const maxProblemChars = 300
