package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"turnkeeper/tools"
)

// TestWhatCannotBeChecked tests that patterns that Go does not support are not checked,
// and that the rest of the schema is.
func TestWhatCannotBeChecked(t *testing.T) {
	const eMail = `"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"`
	of := func(property string) string { return `{"type":"object","properties":{"a":` + property + `}}` }
	tests := []struct{ name, schema, good, bad string }{
		{"look-ahead", of(`{"type":"string","pattern":` + eMail + `}`), `{"a":"a@b.org"}`, `{"a":1}`},
		{"many times", of(`{"type":"string","pattern":"^.{1,4096}$","maxLength":3}`), `{"a":"abc"}`, `{"a":"abcd"}`},
		{"escape of a code point", of(`{"type":"string","pattern":"^[\\u0020-\\u00ff]+$"}`), `{"a":"b"}`, `{"a":[]}`},
		{"back-reference", of(`{"type":"string","pattern":"(a)\\1"}`), `{"a":"aa"}`, `{"a":1}`},
		{"of a property's name",
			`{"type":"object","patternProperties":{"^(?!x)":{"type":"string"}},"additionalProperties":false,"properties":{"n":{"type":"integer"}}}`, `{"y":"z"}`, `{"n":"1"}`},
		{"in what must not be", of(`{"type":"string","not":{"pattern":"^(?!x)"}}`), `{"a":"x"}`, `{"a":1}`},
		{"in one of several", of(`{"type":"string","oneOf":[{"pattern":"^(?!x)"},{"pattern":"^x"}]}`),
			`{"a":"x"}`, `{"a":1}`},
		{"behind a reference",
			`{"type":"object","properties":{"a":{"type":"string","not":{"$ref":"#/$defs/p"}}},"$defs":{"p":{"pattern":"^(?!x)"}}}`, `{"a":"x"}`, `{"a":1}`},
		{"in a condition",
			`{"type":"object","if":{"properties":{"a":{"pattern":"^(?!x)"}}},"then":{"required":["b"]},"properties":{"a":{"type":"string"}}}`, `{"a":"x"}`, `{"a":1}`},
		{"one that can be checked stays", of(`{"type":"string","pattern":"^x"}`), `{"a":"x"}`, `{"a":"y"}`},
		{"sign of draft 7 left out",
			`{"$schema":"http://json-schema.org/draft-07/schema","type":"object","properties":{"a":{"items":[{"type":"string"}]}}}`, `{"a":["b"]}`, `{"a":[1]}`},
		{"sign of 2020-12 added",
			`{"$schema":"https://json-schema.org/draft/2020-12/schema#","type":"object","properties":{"a":{"type":"string"}}}`, `{"a":"b"}`, `{"a":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			schema := compile(t, tt.schema)
			if _, fault := tools.CheckArguments(schema, tt.good); fault != "" {
				t.Errorf("%s: %s", tt.good, fault)
			}
			if _, fault := tools.CheckArguments(schema, tt.bad); fault == "" {
				t.Errorf("%s was taken", tt.bad)
			}
		})
	}
}

// TestStepsAreExact tests that prices are multiples of a cent, which their floats are not.
func TestStepsAreExact(t *testing.T) {
	schema := compile(t, `{"type":"object","properties":{
		"price":{"type":"number","multipleOf":0.01},
		"lines":{"type":"array","items":{"$ref":"#/$defs/line"}},
		"pairs":{"type":"integer","multipleOf":2}},
		"$defs":{"line":{"type":"object","properties":{"sum":{"type":"number","multipleOf":0.05}}}}}`)
	for _, good := range []string{`{"price":19.99}`, `{"price":0.07}`, `{"price":1e3}`, `{"price":-4.35}`,
		`{"lines":[{"sum":0.15},{"sum":1.35}]}`, `{"pairs":4}`} {
		if _, fault := tools.CheckArguments(schema, good); fault != "" {
			t.Errorf("%s: %s", good, fault)
		}
	}
	for bad, want := range map[string]string{
		`{"price":1.005}`:                       `"price": 1.005 is not a multiple of 0.01`,
		`{"lines":[{"sum":0.15},{"sum":1.36}]}`: `"lines[].sum": 1.36 is not a multiple of 0.05`,
		`{"pairs":3}`:                           `"pairs": multipleOf`,
	} {
		if _, fault := tools.CheckArguments(schema, bad); !strings.Contains(fault, want) {
			t.Errorf("%s: %q, want %q", bad, fault, want)
		}
	}
}

// TestASchemaOfTooManyChecks tests that a few lines of nested references cannot keep a
// worker busy forever.
func TestASchemaOfTooManyChecks(t *testing.T) {
	defs := map[string]any{"d30": map[string]any{"type": "object"}}
	for i := range 30 {
		next := map[string]string{"$ref": fmt.Sprintf("#/$defs/d%d", i+1)}
		defs[fmt.Sprintf("d%d", i)] = map[string]any{"allOf": []any{next, next}}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "$ref": "#/$defs/d0", "$defs": defs})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tools.CompileSchema(schema); err == nil || !strings.Contains(err.Error(),
		"checked more than 10000 times") {
		t.Errorf("err = %v", err)
	}
}
