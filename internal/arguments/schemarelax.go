package arguments

import (
	"errors"
	"maps"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// relax removes patterns that Go's regexp does not support, such as a look-ahead. Only the tool itself can check these.
//
// The relaxed schema accepts every value that the original accepts, and maybe
// more. So relax also removes a keyword that can refuse a value because a relaxed
// subschema accepts it, such as not, oneOf and if.
func (c *refChecker) relax() {
	lax := map[*jsonschema.Schema]bool{}
	for _, s := range c.all {
		if dropPatterns(s) {
			lax[s] = true
		}
	}
	within := c.leadingTo(lax)
	isLax := func(part *jsonschema.Schema) bool { return within[part] }
	for _, s := range c.all {
		if isLax(s.Not) {
			s.Not = nil
		}
		if slices.ContainsFunc(s.OneOf, isLax) {
			s.OneOf = nil
		}
		if isLax(s.If) {
			s.If, s.Then, s.Else = nil, nil, nil
		}
		if isLax(s.Contains) {
			s.MaxContains = nil
		}
		if isLax(s) {
			s.UnevaluatedProperties, s.UnevaluatedItems = nil, nil
		}
	}
}

// leadingTo returns those schemas and all schemas that contain or reference them.
func (c *refChecker) leadingTo(those map[*jsonschema.Schema]bool) map[*jsonschema.Schema]bool {
	users := map[*jsonschema.Schema][]*jsonschema.Schema{}
	for _, s := range c.all {
		if s.Ref != "" {
			users[c.ids[s.Ref]] = append(users[c.ids[s.Ref]], s)
		}
		eachChild(s, func(_ string, child *jsonschema.Schema, _ bool) { users[child] = append(users[child], s) })
	}
	leading := maps.Clone(those)
	for next := slices.Collect(maps.Keys(those)); len(next) > 0; next = next[1:] {
		for _, user := range users[next[0]] {
			if !leading[user] {
				leading[user] = true
				next = append(next, user)
			}
		}
	}
	return leading
}

// dropPatterns removes unsupported patterns, and reports whether there were any.
func dropPatterns(s *jsonschema.Schema) (dropped bool) {
	if beyondGo(s.Pattern) {
		s.Pattern, dropped = "", true
	}
	for pattern := range s.PatternProperties {
		if beyondGo(pattern) { // its properties would count as additional
			delete(s.PatternProperties, pattern)
			s.AdditionalProperties, dropped = nil, true
		}
	}
	return dropped
}

// beyondGo reports whether a pattern uses syntax that Go's regexp does not support.
// It returns false for a pattern that is invalid in any language.
func beyondGo(pattern string) bool {
	_, err := regexp.Compile(pattern)
	fault, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return false
	}
	switch fault.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidRepeatSize, syntax.ErrInvalidCharRange,
		syntax.ErrInvalidNamedCapture, syntax.ErrLarge, syntax.ErrNestingDepth:
		return true
	}
	return false
}

// offStep describes the first number that is not a multiple of its step; empty:
// there is none. It follows only the keywords that apply to every value:
// properties, items, $ref and allOf.
func (s *Schema) offStep(schema *jsonschema.Schema, value any, at string) string {
	if schema == nil || len(s.steps) == 0 {
		return ""
	}
	if n, ok := value.(number); ok {
		if step := s.steps[schema]; step != nil && !multiple(n, step) {
			return strconv.Quote(clip(at, maxKeyChars)) + ": " + string(n) + " is not a multiple of " +
				step.FloatString(decimals(step))
		}
	}
	for _, same := range append([]*jsonschema.Schema{s.refs[schema]}, schema.AllOf...) {
		if off := s.offStep(same, value, at); off != "" {
			return off
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			within := name
			if at != "" {
				within = at + "." + name
			}
			if off := s.offStep(schema.Properties[name], v[name], within); off != "" {
				return off
			}
		}
	case []any:
		for _, item := range v {
			if off := s.offStep(schema.Items, item, at+"[]"); off != "" {
				return off
			}
		}
	}
	return ""
}

func multiple(n number, step *big.Rat) bool {
	exact, ok := new(big.Rat).SetString(string(n))
	return ok && exact.Quo(exact, step).IsInt()
}

// decimals returns the number of digits after the decimal point of a step.
func decimals(step *big.Rat) int {
	n, _ := step.FloatPrec()
	return n
}
