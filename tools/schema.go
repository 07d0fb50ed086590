package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"turnkeeper/internal/jsonlimit"
)

// A Schema is a compiled JSON Schema of a tool's arguments. It is safe for
// concurrent use.
type Schema struct {
	root    *jsonschema.Schema
	whole   *jsonschema.Resolved
	partial *jsonschema.Resolved // accepts any subset of the properties; nil if it does not compile

	steps map[*jsonschema.Schema]*big.Rat // fractional multipleOf, which the validator cannot check
	refs  map[*jsonschema.Schema]*jsonschema.Schema
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
	steps := refs.relax()
	partial := partialOf(root)
	whole, err := root.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema of the parameters does not compile: %w", err)
	}
	if err := whole.Validate(map[string]any{}); err != nil && strings.Contains(err.Error(), "cannot validate version") {
		return nil, fmt.Errorf("the schema of the parameters is of draft %s; use draft 2020-12 or draft 7", root.Schema)
	}
	return &Schema{root: root, whole: whole, partial: partial, steps: steps, refs: refs.targets()}, nil
}

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
	plain := plainValue(args).(map[string]any)
	whole := s.whole.Validate(plain)
	if whole == nil {
		if off := s.offStep(s.root, args, ""); off != "" {
			return []string{off}
		}
		return nil
	}
	var found []string
	if missing := s.missing(plain); len(missing) > 0 {
		found = append(found, "missing "+quoteAll(missing))
	}
	if extra := s.unexpected(plain); len(extra) > 0 {
		found = append(found, "unexpected "+quoteAll(extra))
	}
	found = append(found, s.badProperties(plain)...)
	if len(found) == 0 {
		found = []string{explain(whole)}
	}
	if len(found) > maxProblems {
		found = append(found[:maxProblems], fmt.Sprintf("and %d more", len(found)-maxProblems))
	}
	return found
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

func (s *Schema) badProperties(args map[string]any) []string {
	if s.partial == nil {
		return nil
	}
	var found []string
	for _, name := range sortedKeys(args) {
		if err := s.partial.Validate(map[string]any{name: args[name]}); err != nil {
			found = append(found, explain(err))
		}
	}
	return found
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
	return fmt.Sprintf("%q: %s", clip(strings.TrimPrefix(stepNames.Replace(path), "."), maxKeyChars), clip(text, maxProblemChars))
}

const maxProblemChars = 300
