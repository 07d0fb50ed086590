package arguments

import (
	"encoding/json"
	"sync"
)

// Bounds of the cache of schemas.
const (
	maxCachedSchemas     = 1000
	maxCachedSchemaBytes = 16 << 10 // of each schema's text
)

// compiled holds schemas by their text, because each turn registers the tools of its agent that
// the process does not have itself, and compiling takes longer than the rest of a small turn.
var compiled struct {
	sync.Mutex
	schemas map[string]*Schema
}

// CompileSchema compiles the JSON Schema of an object: draft 2020-12 or draft 7,
// with references within the schema only. Patterns that Go's regexp does not
// support, such as a look-ahead, are not checked. A schema must come from the
// operator or a server the operator trusts: it can make checks slow. Calls with
// the same text may return the same Schema. It is safe for concurrent use.
func CompileSchema(parameters json.RawMessage) (*Schema, error) {
	if len(parameters) > maxCachedSchemaBytes {
		return compileSchema(parameters)
	}
	compiled.Lock()
	schema := compiled.schemas[string(parameters)]
	compiled.Unlock()
	if schema != nil {
		return schema, nil
	}
	schema, err := compileSchema(parameters)
	if err != nil {
		return nil, err
	}
	compiled.Lock()
	defer compiled.Unlock()
	if compiled.schemas == nil || len(compiled.schemas) >= maxCachedSchemas {
		compiled.schemas = map[string]*Schema{}
	}
	compiled.schemas[string(parameters)] = schema
	return schema, nil
}
