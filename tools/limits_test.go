package tools_test

import (
	"strings"
	"testing"

	"turnkeeper/tools"
)

// TestBulkySchemas checks that a schema with many values is refused before it is decoded.
func TestBulkySchemas(t *testing.T) {
	for schema, says := range map[string]string{
		`{"type":"object","enum":[` + strings.Repeat("[],", 60_000) +
			`0]}`: "the schema of the parameters is too large: it has more than 50000 JSON values",
		`{"type":"object","description":"` + strings.Repeat("x", 1<<20) +
			`"}`: "the schema of the parameters is too large: it has more than 1048576 bytes of JSON",
		`{"type":"object","not":` + strings.Repeat(`{"not":`, 64) + `{}` + strings.Repeat("}",
			65): "the schema of the parameters is too large: it has more than 64 levels",
		`{"type":"object","properties":{"a":{"enum":[` + strings.TrimSuffix(strings.Repeat(`"x",`, 1000), ",") +
			`]}}} junk`: "the schema of the parameters is not valid JSON",
	} {
		if _, err := tools.CompileSchema([]byte(schema)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v", schema, err)
		}
	}
}
