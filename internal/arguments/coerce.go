package arguments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A coercer corrects common mistakes of models: null for an optional property that
// cannot be null and, if it decodes, an array or object that is encoded as JSON in a
// string.
type coercer struct {
	refs    map[*jsonschema.Schema]*jsonschema.Schema
	decodes bool
	coerced bool
}

// coerce corrects a value by its schema, at any level. depth is the value's nesting
// level.
func (c *coercer) coerce(schema *jsonschema.Schema, value any, depth int) any {
	if schema == nil {
		return value
	}
	if text, ok := value.(string); ok {
		value = c.decode(schema, text, depth)
	}
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			property := schema.Properties[name]
			if member == nil && property != nil && !slices.Contains(schema.Required, name) && c.refusesNull(property) {
				delete(v, name)
				continue
			}
			v[name] = c.coerce(property, member, depth+1)
		}
	case []any:
		for i, item := range v {
			v[i] = c.coerce(schema.Items, item, depth+1)
		}
	}
	return value
}

func (c *coercer) decode(schema *jsonschema.Schema, text string, depth int) any {
	if !c.decodes || wants(schema, "string") || !wants(schema, "array") && !wants(schema, "object") {
		return text
	}
	value, err := parseJSON(strings.Trim(text, jsonSpace), MaxDepth-depth+1)
	if err != nil {
		return text
	}
	switch value.(type) {
	case []any:
		if !wants(schema, "array") {
			return text
		}
	case map[string]any:
		if !wants(schema, "object") {
			return text
		}
	default:
		return text
	}
	c.coerced = true
	return value
}

// refusesNull reports whether the schema certainly refuses null. It ends, because
// checkRefs refuses references that form a loop.
func (c *coercer) refusesNull(schema *jsonschema.Schema) bool {
	switch {
	case schema.Type != "" && schema.Type != "null",
		len(schema.Types) > 0 && !slices.Contains(schema.Types, "null"),
		len(schema.Enum) > 0 && !slices.Contains(schema.Enum, nil),
		schema.Const != nil && *schema.Const != nil,
		len(schema.AnyOf) > 0 && !slices.ContainsFunc(schema.AnyOf, c.mayBeNull),
		len(schema.OneOf) > 0 && !slices.ContainsFunc(schema.OneOf, c.mayBeNull):
		return true
	}
	target := c.refs[schema]
	return target != nil && c.refusesNull(target) || slices.ContainsFunc(schema.AllOf, c.refusesNull)
}

func (c *coercer) mayBeNull(schema *jsonschema.Schema) bool { return !c.refusesNull(schema) }

func wants(schema *jsonschema.Schema, kind string) bool {
	return schema.Type == kind || slices.Contains(schema.Types, kind)
}

// otherCase describes a key, at any depth, that differs only in letter case from a property that the schemas of its
// object declare. A decoder that ignores letter case would read it as the property. Empty: there is none.
func (s *Schema) otherCase(schemas []*jsonschema.Schema, value any) string {
	schemas = s.applied(schemas)
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if name := misspelt(schemas, key); name != "" {
				return fmt.Sprintf("the key %q differs only in letter case from %q; write %q",
					clip(key, maxKeyChars), name, name)
			}
			if found := s.otherCase(ofMember(schemas, key), v[key]); found != "" {
				return found
			}
		}
	case []any:
		within := ofItems(schemas)
		for _, item := range v {
			if found := s.otherCase(within, item); found != "" {
				return found
			}
		}
	}
	return ""
}

// applied returns the schemas and all that they apply to the same value, except what it must not be.
func (s *Schema) applied(schemas []*jsonschema.Schema) (all []*jsonschema.Schema) {
	seen := map[*jsonschema.Schema]bool{nil: true}
	var add func(*jsonschema.Schema)
	add = func(schema *jsonschema.Schema) {
		if seen[schema] {
			return
		}
		seen[schema] = true
		all = append(all, schema)
		add(s.refs[schema])
		eachChild(schema, func(_ string, child *jsonschema.Schema, sameValue bool) {
			if sameValue && child != schema.Not {
				add(child)
			}
		})
	}
	for _, schema := range schemas {
		add(schema)
	}
	return all
}

// misspelt returns a property that differs from an undeclared key only in letter case; empty: none.
func misspelt(schemas []*jsonschema.Schema, key string) (name string) {
	for _, schema := range schemas {
		if schema.Properties[key] != nil {
			return ""
		}
	}
	for _, schema := range schemas {
		for declared := range schema.Properties {
			if strings.EqualFold(declared, key) {
				name = max(name, declared) // one of several, always the same
			}
		}
	}
	return name
}

// ofMember returns the schemas of a member of an object, with nil for each that is not there.
func ofMember(schemas []*jsonschema.Schema, key string) (of []*jsonschema.Schema) {
	for _, schema := range schemas {
		property, declared := schema.Properties[key]
		of = append(of, property)
		if !declared {
			of = append(of, schema.AdditionalProperties, schema.UnevaluatedProperties)
		}
		for _, pattern := range schema.PatternProperties {
			of = append(of, pattern)
		}
	}
	return of
}

// ofItems returns the schemas of the items of an array, with nil for each that is not there.
func ofItems(schemas []*jsonschema.Schema) (of []*jsonschema.Schema) {
	for _, schema := range schemas {
		of = slices.Concat(of, schema.PrefixItems, schema.ItemsArray,
			[]*jsonschema.Schema{schema.Items, schema.AdditionalItems, schema.UnevaluatedItems, schema.Contains})
	}
	return of
}
