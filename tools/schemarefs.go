package tools

import (
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// checkRefs refuses a schema whose references lead back to where they started
// without going into a property or an item: checking a value by it would never
// end. Dynamic references and inner $ids are refused, for they cannot be
// followed here.
func checkRefs(root *jsonschema.Schema) error {
	c := refChecker{state: map[*jsonschema.Schema]visit{}, ids: map[string]*jsonschema.Schema{}}
	c.collect(root, "#")
	for _, s := range c.all {
		if s.DynamicRef != "" {
			return fmt.Errorf("the schema of the parameters has a $dynamicRef; use $ref")
		}
		if s.ID != "" && s != root {
			return fmt.Errorf("the schema of the parameters has an $id below its root; use $defs")
		}
		if err := c.follow(s); err != nil {
			return err
		}
	}
	return nil
}

type visit int

const (
	visiting visit = iota + 1
	visited
)

type refChecker struct {
	all   []*jsonschema.Schema
	ids   map[string]*jsonschema.Schema // by what a $ref may say: "#/...", "#anchor" or an $id
	state map[*jsonschema.Schema]visit
}

// collect finds every schema below s, and the references that lead to it.
func (c *refChecker) collect(s *jsonschema.Schema, pointer string) {
	if s == nil {
		return
	}
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

// follow goes through all schemas that judge the same value as s does.
func (c *refChecker) follow(s *jsonschema.Schema) error {
	switch c.state[s] {
	case visiting:
		return fmt.Errorf("the schema of the parameters refers to itself without end")
	case visited:
		return nil
	}
	c.state[s] = visiting
	var err error
	next := func(other *jsonschema.Schema) {
		if err == nil && other != nil {
			err = c.follow(other)
		}
	}
	if s.Ref != "" {
		target, ok := c.ids[s.Ref]
		if !ok {
			return fmt.Errorf("the schema of the parameters has the reference %q; only references within the schema, as \"#/$defs/NAME\", can be followed", s.Ref)
		}
		next(target)
	}
	eachChild(s, func(_ string, child *jsonschema.Schema, sameValue bool) {
		if sameValue {
			next(child)
		}
	})
	c.state[s] = visited
	return err
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
