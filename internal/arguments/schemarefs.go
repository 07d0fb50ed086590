package arguments

import (
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// checkRefs refuses a schema whose references form a loop that enters no property
// or item, because a check would never end. It refuses $dynamicRef and inner $ids,
// which it cannot follow, and a schema that checks one value more than maxChecks
// times.
func checkRefs(root *jsonschema.Schema) (*refChecker, error) {
	c := &refChecker{checks: map[*jsonschema.Schema]int{}, ids: map[string]*jsonschema.Schema{}}
	c.collect(root, "#")
	for _, s := range c.all {
		if s.DynamicRef != "" {
			return nil, fmt.Errorf("the schema of the parameters has a $dynamicRef; use $ref")
		}
		if s.ID != "" && s != root {
			return nil, fmt.Errorf("the schema of the parameters has an $id below its root; use $defs")
		}
		if _, err := c.follow(s); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// maxChecks is the maximum number of checks of one value. Without it, a few lines
// of nested references could cause any number of checks.
const maxChecks = 10_000

const visiting = -1

type refChecker struct {
	all    []*jsonschema.Schema
	ids    map[string]*jsonschema.Schema // by the text of a $ref: "#/...", "#anchor" or an $id
	checks map[*jsonschema.Schema]int    // of one value, by schema; visiting: count in progress
}

// collect records s and every schema below it, with the names that a $ref can use.
func (c *refChecker) collect(s *jsonschema.Schema, pointer string) {
	c.all = append(c.all, s)
	c.ids[pointer] = s
	if s.Anchor != "" {
		c.ids["#"+s.Anchor] = s
	}
	if s.ID != "" {
		c.ids[s.ID] = s
	}
	eachChild(s, func(step string, child *jsonschema.Schema, _ bool) {
		c.collect(child, pointer+"/"+step)
	})
}

// follow counts the checks of one value by s and by the schemas that s applies to
// the same value.
func (c *refChecker) follow(s *jsonschema.Schema) (checks int, err error) {
	switch known := c.checks[s]; {
	case known == visiting:
		return 0, fmt.Errorf("the schema of the parameters refers to itself without end")
	case known > 0:
		return known, nil
	}
	c.checks[s] = visiting
	checks = 1
	next := func(other *jsonschema.Schema) {
		if err != nil {
			return
		}
		var more int
		more, err = c.follow(other)
		if checks += more; err == nil && checks > maxChecks {
			err = fmt.Errorf("the schema of the parameters has one value checked more than %d times; simplify it",
				maxChecks)
		}
	}
	if s.Ref != "" {
		target, ok := c.ids[s.Ref]
		if !ok {
			return 0,
				fmt.Errorf(
					"the schema of the parameters has the reference %q; only references within the schema, as \"#/$defs/NAME\", can be followed", s.Ref)
		}
		next(target)
	}
	eachChild(s, func(_ string, child *jsonschema.Schema, sameValue bool) {
		if sameValue {
			next(child)
		}
	})
	c.checks[s] = checks
	return checks, err
}

// targets returns the schema that each $ref refers to, by the schema that has the $ref.
func (c *refChecker) targets() map[*jsonschema.Schema]*jsonschema.Schema {
	targets := map[*jsonschema.Schema]*jsonschema.Schema{}
	for _, s := range c.all {
		if s.Ref != "" {
			targets[s] = c.ids[s.Ref]
		}
	}
	return targets
}

// eachChild calls f with every direct subschema of s, its JSON pointer relative to
// s, and whether it applies to the same value as s.
func eachChild(s *jsonschema.Schema, f func(step string, child *jsonschema.Schema, sameValue bool)) {
	one := func(step string, child *jsonschema.Schema, sameValue bool) {
		if child != nil {
			f(step, child, sameValue)
		}
	}
	list := func(step string, children []*jsonschema.Schema, sameValue bool) {
		for i, child := range children {
			one(fmt.Sprintf("%s/%d", step, i), child, sameValue)
		}
	}
	byName := func(step string, children map[string]*jsonschema.Schema, sameValue bool) {
		for name, child := range children {
			one(step+"/"+pointerEscape.Replace(name), child, sameValue)
		}
	}
	list("allOf", s.AllOf, true)
	list("anyOf", s.AnyOf, true)
	list("oneOf", s.OneOf, true)
	one("not", s.Not, true)
	one("if", s.If, true)
	one("then", s.Then, true)
	one("else", s.Else, true)
	byName("dependentSchemas", s.DependentSchemas, true)
	byName("dependencies", s.DependencySchemas, true)

	byName("$defs", s.Defs, false)
	byName("definitions", s.Definitions, false)
	byName("properties", s.Properties, false)
	byName("patternProperties", s.PatternProperties, false)
	one("additionalProperties", s.AdditionalProperties, false)
	one("unevaluatedProperties", s.UnevaluatedProperties, false)
	one("propertyNames", s.PropertyNames, false)
	list("prefixItems", s.PrefixItems, false)
	list("items", s.ItemsArray, false)
	one("items", s.Items, false)
	one("additionalItems", s.AdditionalItems, false)
	one("unevaluatedItems", s.UnevaluatedItems, false)
	one("contains", s.Contains, false)
	one("contentSchema", s.ContentSchema, false)
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")
