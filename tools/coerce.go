package tools

import (
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A coercer corrects common mistakes of models: an array or object that is encoded
// as JSON in a string, and null for an optional property that cannot be null.
type coercer struct {
	refs    map[*jsonschema.Schema]*jsonschema.Schema
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
	if wants(schema, "string") || !wants(schema, "array") && !wants(schema, "object") {
		return text
	}
	value, err := parseJSON(strings.Trim(text, jsonSpace), MaxArgumentDepth-depth+1)
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
