package tools

import (
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// checkRefs refuses a schema whose references lead back to where they started
// without going into a property or an item: checking a value by it would never
// end. Dynamic references and inner $ids are refused, for they cannot be
// followed here. So is one by which a single value would be checked too often.
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

// maxChecks is how often a schema may have one value checked: references to
// schemas that are made of references make few lines as many checks as one likes.
const maxChecks = 10_000

const visiting = -1

type refChecker struct {
	all    []*jsonschema.Schema
	ids    map[string]*jsonschema.Schema // by what a $ref may say: "#/...", "#anchor" or an $id
	checks map[*jsonschema.Schema]int    // of one value, by each schema; visiting: being counted
}

// collect finds every schema below s, and the references that lead to it.
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

// follow goes through all schemas that judge the same value as s does, and counts
// their checks.
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
			err = fmt.Errorf("the schema of the parameters has one value checked more than %d times; simplify it", maxChecks)
		}
	}
	if s.Ref != "" {
		target, ok := c.ids[s.Ref]
		if !ok {
			return 0, fmt.Errorf("the schema of the parameters has the reference %q; only references within the schema, as \"#/$defs/NAME\", can be followed", s.Ref)
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

// targets are the schemas that references lead to, by where they stand.
func (c *refChecker) targets() map[*jsonschema.Schema]*jsonschema.Schema {
	targets := map[*jsonschema.Schema]*jsonschema.Schema{}
	for _, s := range c.all {
		if s.Ref != "" {
			targets[s] = c.ids[s.Ref]
		}
	}
	return targets
}

// eachChild calls f with every schema directly in s, its step of a JSON
// pointer, and whether it judges the value that s judges.
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
