package arguments_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"turnkeeper/internal/arguments"
)

func compile(t testing.TB, schema string) *arguments.Schema {
	t.Helper()
	s, err := arguments.CompileSchema(json.RawMessage(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return s
}

func ofN(property string) string {
	return `{"type":"object","properties":{"n":` + property + `}}`
}

// TestSchemasCompareNumbersExactly tests numbers that a float64 does not tell apart.
func TestSchemasCompareNumbersExactly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, good, bad string }{
		{ofN(`{"enum":[1122334455667788801]}`), `1122334455667788801 1122334455667788801.0 1.122334455667788801e18`,
			`1122334455667788802 1122334455667788800 1122334455667788801.5`},
		{ofN(`{"const":1122334455667788801}`), `1122334455667788801`, `1122334455667788802`},
		{ofN(`{"enum":[18446744073709551615]}`), `18446744073709551615`, `18446744073709551616 18446744073709551614`},
		{ofN(`{"const":123456789012345678901234567890}`), `123456789012345678901234567890`,
			`123456789012345678901234567891 1.2345678901234568e29`},
		{ofN(`{"enum":[[{"a":9007199254740993}]]}`), `[{"a":9007199254740993}]`, `[{"a":9007199254740992}]`},
		{ofN(`{"const":0.1}`), `0.1 1e-1 0.10`, `0.1000000000000000055 0.10000000000000000001`},
		{ofN(`{"maximum":1}`), `1 1.0 0.99999999999999999999`, `1.00000000000000000001`},
		{ofN(`{"exclusiveMinimum":0}`), `0.01 1e-300 1`, `0 -0.01 -1`},
		{ofN(`{"const":null}`), `null`, `0 "null"`},
		{ofN(`{"$anchor":"properties","minimum":1122334455667788801}`), `1122334455667788801`, `1122334455667788800`},
		{ofN(`{"exclusiveMinimum":0.1}`), `0.10000000000000000001`, `0.1 0.09999999999999999999`},
		{ofN(`{"minimum":1122334455667788801}`), `1122334455667788801 1e19`, `1122334455667788800 -1e19`},
		{ofN(`{"exclusiveMaximum":-1122334455667788801}`), `-1122334455667788802`,
			`-1122334455667788801 -1122334455667788800`},
		{ofN(`{"type":"integer"}`), `1.0 1e30 0 -0`, `1.00000000000000000001 1122334455667788801.5 1e-300`},
		{ofN(`{"type":"array","uniqueItems":true}`),
			`[1122334455667788801,1122334455667788802,0.1,0.10000000000000000001]`,
			`[1122334455667788801,1122334455667788801.0] [{"a":1},{"a":1e0}]`},
		{ofN(`{"multipleOf":2}`), `1122334455667788802 0 -4`, `1122334455667788801 0.5`},
		{ofN(`{"multipleOf":0.01}`), `19.99 0.07 -4.35 1e300`, `1.005 0.00000000000000000001`},
		{ofN(`{"oneOf":[{"multipleOf":0.01},{"minimum":100}]}`), `19.99 100.001`, `1.005 100.01`},
		{ofN(`{"not":{"multipleOf":0.01}}`), `1.005`, `19.99`},
		{ofN(`{"not":{"const":1122334455667788801}}`), `1122334455667788802`, `1122334455667788801`},
		{ofN(`{"if":{"minimum":1122334455667788801},"then":{"multipleOf":3}}`),
			`1122334455667788800 1122334455667788801 1122334455667788804`, `1122334455667788802`},
		{ofN(`{"contains":{"const":9007199254740993},"maxContains":1}`), `[9007199254740993,9007199254740992]`,
			`[9007199254740992] [9007199254740993,9007199254740993]`},
		{ofN(`{"$ref":"#/$defs/a~1b"}`)[:len(ofN(`{"$ref":"#/$defs/a~1b"}`))-1] +
			`,"$defs":{"a/b":{"enum":[1122334455667788801]}}}`, `1122334455667788801`, `1122334455667788802`},
		{
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"n":{"items":[{"const":9007199254740993}]}}}`, `[9007199254740993]`, `[9007199254740992]`},
		{ofN(`{"type":["integer","null"],"multipleOf":3,"enum":[3,6,7,null]}`), `3 6 null`, `7 9`},
	} {
		schema := compile(t, c.schema)
		for n := range strings.FieldsSeq(c.good) {
			if _, _, fault := schema.Check(`{"n":`+n+`}`, arguments.AsWritten); fault != "" {
				t.Errorf("%s refuses %s: %s", c.schema, n, fault)
			}
		}
		for n := range strings.FieldsSeq(c.bad) {
			if _, _, fault := schema.Check(`{"n":`+n+`}`, arguments.AsWritten); !strings.HasPrefix(fault,
				"invalid arguments: \"") {
				t.Errorf("%s with %s: %q", c.schema, n, fault)
			}
		}
	}
}

// TestFaultsOfDigits tests what is said of numbers that only their digits refuse.
func TestFaultsOfDigits(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		ofN(`{"maximum":1}`): `"n" does not fit the schema; numbers`,
		`{"type":"object","anyOf":[{"properties":{"n":{"maximum":1}}}]}`: "they do not fit the schema; numbers",
		ofN(
			`{"enum":[1122334455667788801]}`): `"n": enum: 1 does not equal any of: [1122334455667788801]`,
		ofN(
			`{"const":0.1234567890123456789}`): `"n": const: 1 does not equal 0.1234567890123456789`,
		ofN(`{"enum":[1],"exclusiveMaximum":0.5}`): `"n": exclusiveMaximum`,
	} {
		_, _, fault := compile(t, schema).Check(`{"n":1.00000000000000000001}`, arguments.AsWritten)
		if !strings.HasPrefix(fault, "invalid arguments: "+want) {
			t.Errorf("%s: %q, want %q", schema, fault, want)
		}
	}
	const cents = `{"multipleOf":0.01}`
	for _, c := range []struct{ schema, value, want string }{
		{ofN(`{"multipleOf":2}`), `1122334455667788801`, `"n": 1122334455667788801 is not a multiple of 2`},
		{ofN(`{"items":` + cents + `}`), `["x",1.005]`, `"n[]": 1.005 is not a multiple of 0.01`},
		{ofN(`{"properties":{"x":` + cents + `,"y":` + cents + `}}`), `{"x":1,"y":1.005}`,
			`"n.y": 1.005 is not a multiple of 0.01`},
	} {
		if _, _, fault := compile(t, c.schema).Check(`{"n":`+c.value+`}`, arguments.AsWritten); !strings.Contains(
			fault, c.want) {
			t.Errorf("%s: %q, want %q", c.schema, fault, c.want)
		}
	}
}

// TestExactAgreesWithTheValidator compares the checks with those of the validator alone, for numbers that floats and
// their quotients stand for exactly.
func TestExactAgreesWithTheValidator(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	number := func() any { return float64(r.IntN(17)-8) / 2 }
	var schemaOf func(depth int) map[string]any
	schemaOf = func(depth int) map[string]any {
		s := map[string]any{}
		for range r.IntN(3) {
			switch keyword := []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
				"enum", "const", "type", "uniqueItems"}[r.IntN(9)]; keyword {
			case "multipleOf":
				s[keyword] = []any{0.5, 1.0, 1.5, 2.0}[r.IntN(4)]
			case "enum":
				s[keyword] = []any{number(), number(), []any{number()}, "a"}
			case "const":
				s[keyword] = number()
			case "type":
				s[keyword] = []any{"integer", "number", []any{"array", "integer"}}[r.IntN(3)]
			case "uniqueItems":
				s[keyword] = true
			default:
				s[keyword] = number()
			}
		}
		if depth > 0 {
			switch r.IntN(6) {
			case 0:
				s["oneOf"] = []any{schemaOf(depth - 1), schemaOf(depth - 1)}
			case 1:
				s["anyOf"] = []any{schemaOf(depth - 1), schemaOf(depth - 1)}
			case 2:
				s["not"] = schemaOf(depth - 1)
			case 3:
				s["items"] = schemaOf(depth - 1)
			case 4:
				s["if"], s["then"], s["else"] = schemaOf(depth-1), schemaOf(depth-1), schemaOf(depth-1)
			}
		}
		return s
	}
	accepted := 0
	for range 1000 {
		text, err := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"n": schemaOf(2)}})
		if err != nil {
			t.Fatal(err)
		}
		var plain jsonschema.Schema
		if err := json.Unmarshal(text, &plain); err != nil {
			t.Fatal(err)
		}
		validator, err := plain.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		value := number()
		if r.IntN(3) == 0 {
			value = []any{number(), number(), []any{number()}}
		}
		args := map[string]any{"n": value}
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		_, _, fault := compile(t, string(text)).Check(string(raw), arguments.AsWritten)
		if want := validator.Validate(args) == nil; (fault == "") != want {
			t.Fatalf("seed %d: %s with %s: %q, the validator accepts: %t", seed, text, raw, fault, want)
		} else if want {
			accepted++
		}
	}
	if accepted < 200 || accepted > 800 {
		t.Errorf("%d of 1000 were accepted: the test compares little", accepted)
	}
}

// TestSchemasThatCannotBeExact tests schemas that are refused because a reader could take them otherwise.
func TestSchemasThatCannotBeExact(t *testing.T) {
	t.Parallel()
	steps := make([]string, 9)
	for i := range steps {
		steps[i] = fmt.Sprintf(`{"multipleOf":%d}`, i+1)
	}
	many := make([]string, 40_000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for schema, want := range map[string]string{
		ofN(`{"Minimum":1}`):                                "minimum in other letters",
		ofN(`{"ENUM":[1]}`):                                 "enum or const in other letters",
		ofN(`{"Const":1}`):                                  "enum or const in other letters",
		ofN(`{"MultipleOf":1}`):                             "multipleOf in other letters",
		ofN(`{"multipleOf":0}`):                             "multipleOf 0; it must be more than 0",
		ofN(`{"multipleOf":-1}`):                            "multipleOf -1; it must be more than 0",
		ofN(`{"enum":[1],"enum":[2]}`):                      `the key "enum" is there twice`,
		ofN(`{"anyOf":[` + strings.Join(steps, ",") + `]}`): "more than 8 different values of multipleOf",
		ofN(`{"enum":[` + strings.Join(many[:19], ",") + `],"anyOf":[` + strings.Join(steps[:8],
			",") + `]}`): "too many different numbers",
		ofN(`{"enum":[` + strings.Join(many, ",") + `],"anyOf":[` + strings.Join(steps[:8],
			",") + `]}`): "too many different numbers",
	} {
		if _, err := arguments.CompileSchema(json.RawMessage(schema)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", schema, err, want)
		}
	}
	compile(t, ofN(`{"anyOf":[`+strings.Join(steps[:8], ",")+`]}`))
	compile(t, ofN(`{"anyOf":[`+strings.Repeat(steps[0]+",", 9)+`{}]}`))
	// one more is refused
	compile(t, ofN(`{"enum":[`+strings.Join(many[:18], ",")+`],"anyOf":[`+strings.Join(steps[:8], ",")+`]}`))
	compile(t, ofN(`{"pattern":"^[^`+`\u0000`+`]*$"}`))
}

// TestKeysInOtherLetters tests keys that a reader without regard to letter case takes for a declared property.
func TestKeysInOtherLetters(t *testing.T) {
	t.Parallel()
	const mail = `{"type":"object","properties":{"to":{"type":"string"},"lines":{"type":"array","items":{"$ref":"#/$defs/line"}},
		"a":{"anyOf":[{"type":"null"},{"type":"object","properties":{"Amount":{}}}]},"map":{"type":"object","additionalProperties":{"type":"object","properties":{"k":{}}}},
		"Id":{},"ID":{},"headers":{"type":"object"},"open":{"properties":{"any":{}},"additionalProperties":{"properties":{"k":{}}}}},"$defs":{"line":{"type":"object","properties":{"sum":{}}}},"not":{"required":["x"],"properties":{"nO":{}}}}`
	schema := compile(t, mail)
	for _, good := range []string{
		`{"to":"a","lines":[{"sum":1,"x":2}],"a":{"Amount":1},"map":{"K":{"k":1}},"Id":1,"ID":2,"headers":{"To":1,"to":2},"open":{"any":{"K":1}},"no":1,"other":1}`,
	} {
		if _, _, fault := schema.Check(good, arguments.AsWritten); fault != "" {
			t.Errorf("%s: %s", good, fault)
		}
	}
	for bad, want := range map[string]string{
		`{"to":"a","To":"b"}`: `the key "To" differs only in letter case from "to"; write "to"`,
		`{"TO":"b"}`:          `the key "TO" differs`,
		`{"lines":[{"sum":1},{"sum":1,"\u017fum":2}]}`: `the key "ſum" differs only in letter case from "sum"`,
		`{"a":{"amount":1}}`:                           `the key "amount" differs only in letter case from "Amount"`,
		`{"map":{"x":{"\u212a":1}}}`:                   `from "k"`,
		`{"iD":1}`:                                     `from "Id"`,
	} {
		for _, how := range []arguments.Read{arguments.AsWritten, arguments.Decoding} {
			if _, _, fault := schema.Check(bad, how); !strings.Contains(fault, want) {
				t.Errorf("%s: %q, want %q", bad, fault, want)
			}
		}
	}
}

// TestTextsOfJSON tests that only a call that reads may write an array or object as text.
func TestTextsOfJSON(t *testing.T) {
	t.Parallel()
	schema := compile(t, `{"type":"object","properties":{"to":{"type":"array","items":{"type":"string"}}}}`)
	for _, raw := range []string{`{"to":"[\"a\"]"}`, `"{\"to\":[\"a\"]}"`} {
		if args, coerced, fault := schema.Check(raw, arguments.Decoding); fault != "" || !coerced ||
			args.Canonical() != `{"to":["a"]}` {
			t.Errorf("%s, decoding: %s, %t, %q", raw, args.Canonical(), coerced, fault)
		}
		if args, coerced, fault := schema.Check(raw, arguments.AsWritten); fault == "" || coerced {
			t.Errorf("%s, as written: %s, %t", raw, args.Canonical(), coerced)
		}
	}
	const hint = `"to": is of type "string", it must be "array"; write the array or object itself, not a text that holds it as JSON`
	if _, _, fault := schema.Check(`{"to":"[\"a\"]"}`, arguments.AsWritten); !strings.Contains(fault, hint) {
		t.Errorf("%q, want %q", fault, hint)
	}
	if _, _, fault := schema.Check(`{"to":"a"}`, arguments.AsWritten); strings.Contains(fault, "JSON;") ||
		strings.Contains(fault, "holds it") {
		t.Errorf("%q has the hint", fault)
	}
}

// TestNumbersThatMayBeRounded tests which numbers of a schema may be others in the text that a reader with floats has
// read.
func TestNumbersThatMayBeRounded(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		ofN(`{"enum":[1,1122334455667788800]}`):                                       "1122334455667788800",
		ofN(`{"items":{"const":{"a":[-9007199254740992]}}}`):                          "-9007199254740992",
		ofN(`{"const":1000000000000000000000}`):                                       "1000000000000000000000",
		ofN(`{"const":9007199254740991.1}`):                                           "9007199254740991.1",
		ofN(`{"enum":[0.1234567890123456]}`):                                          "0.1234567890123456",
		ofN(`{"enum":[9007199254740991,-1,0.5,123456789012345,0.123456789012345,0]}`): "",
		ofN(`{"minimum":-9223372036854775808,"maximum":9223372036854775808}`):         "",
	} {
		if got := compile(t, schema).Rounded(); got != want {
			t.Errorf("%s: %q, want %q", schema, got, want)
		}
	}
}

// TestTheWholeIsComparedExactly tests an enum of the whole arguments.
func TestTheWholeIsComparedExactly(t *testing.T) {
	t.Parallel()
	schema := compile(t, `{"type":"object","enum":[{"n":1122334455667788801}]}`)
	if _, _, fault := schema.Check(`{"n":1122334455667788801}`, arguments.AsWritten); fault != "" {
		t.Error(fault)
	}
	if _, _, fault := schema.Check(`{"n":1122334455667788802}`, arguments.AsWritten); fault == "" {
		t.Error("another number was accepted")
	}
}
