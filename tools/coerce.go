package tools

import (
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A coercer puts right what models often get wrong: an array or object that is
// encoded as JSON in a string.
type coercer struct {
	coerced bool
}

// coerce goes down value and schema together; depth is that of the value.
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
			v[name] = c.coerce(schema.Properties[name], member, depth+1)
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

func wants(schema *jsonschema.Schema, kind string) bool {
	return schema.Type == kind || slices.Contains(schema.Types, kind)
}
