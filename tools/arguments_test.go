package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"turnkeeper"
	"turnkeeper/tools"
)

func compile(t testing.TB, schema string) *tools.Schema {
	t.Helper()
	s, err := tools.CompileSchema(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const anything = `{"type":"object"}`

func TestCanonicalArguments(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"nothing", "", `{}`},
		{"blanks", " \t\r\n ", `{}`},
		{"empty object", `{ }`, `{}`},
		{"keys sorted by bytes, at any depth", `{"b":{"é":1,"z":2,"Z":3},"a":[{"y":1,"x":2}]}`,
			`{"a":[{"x":2,"y":1}],"b":{"Z":3,"z":2,"é":1}}`},
		{"space dropped", "{\n \"a\" : [ 1 , 2 , { } , [ ] ]\t}", `{"a":[1,2,{},[]]}`},
		{"literals", `{"a":true,"b":false,"c":null}`, `{"a":true,"b":false,"c":null}`},
		{"escapes that need not be", `{"a":"\u0041\/\u00e9\u2028<&>\ud83d\ude00"}`, `{"a":"A/é` + "\u2028" + `<&>😀"}`},
		{"escapes that must be", `{"a":"\"\\\b\f\n\r\t\u0001\u001F"}`, `{"a":"\"\\\b\f\n\r\t\u0001\u001f"}`},
		{"upper-case hex", `{"a":"\u00E9\uD83D\uDE00"}`, `{"a":"é😀"}`},
		{"replacement character as it stands", `{"a":"` + "\uFFFD" + `"}`, `{"a":"` + "\uFFFD" + `"}`},
		{"plain numbers as written", `{"n":[0,7,-12,1.25,-0.5,123456789012345678901234567890]}`,
			`{"n":[0,7,-12,1.25,-0.5,123456789012345678901234567890]}`},
		{"other numbers plain", `{"n":[-0,0.0,1.0,1.50,1e2,1E+2,12.5e1,1e-3,-2.50E-1,0e999]}`,
			`{"n":[0,0,1,1.5,100,100,125,0.001,-0.25,0]}`},
		{"far numbers scientific", `{"n":[1e300,-12.5e-200,123e150]}`, `{"n":[1e300,-1.25e-199,1.23e152]}`},
		{"object in a string", `"{\"b\":1,\"a\":\"x\"}"`, `{"a":"x","b":1}`},
	}
	schema := compile(t, anything)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, fault := tools.CheckReadArguments(schema, tt.raw)
			if got.Canonical != tt.want || fault != "" {
				t.Errorf("CheckArguments() = %s, fault %q; want %s", got.Canonical, fault, tt.want)
			}
		})
	}
}

func TestRefusedJSON(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"array", `[1]`, "they are an array, not a JSON object"},
		{"null", " null ", "they are null, not a JSON object"},
		{"number", `5`, "they are a number"},
		{"string that is no object", `"hello"`, "they are a string"},
		{"string of a string", `"\"{}\""`, "they are a string"},
		{"true", `true`, "they are a boolean"},
		{"not JSON", `hello`, "a JSON value cannot start with 'h'"},
		{"cut off in an object", `{"a":1`, "ends too early"},
		{"cut off in a string", `{"a":"b`, "a string has no end"},
		{"cut off in an escape", `{"a":"\`, "a string has no end"},
		{"cut off", `{`, "not the end"},
		{"two objects", `{}{}`, "text after the end"},
		{"trailing word", `{} ok`, "text after the end"},
		{"trailing comma", `{"a":1,}`, "a key in double quotes"},
		{"trailing comma in an array", `{"a":[1,]}`, "cannot start with ']'"},
		{"single quotes", `{'a':1}`, "a key in double quotes"},
		{"no colon", `{"a" 1}`, "a colon was expected"},
		{"comment", `{/**/}`, "a key in double quotes"},
		{"NaN", `{"a":NaN}`, "cannot start with 'N'"},
		{"byte order mark", "\uFEFF{}", "cannot start"},
		{"key twice", `{"a":1,"a":2}`, `the key "a" is there twice`},
		{"key twice, written otherwise", `{"a":1,"\u0061":2}`, `the key "a" is there twice`},
		{"key twice, deep", `{"x":[{"a":1,"a":1}]}`, `the key "a" is there twice`},
		{"key twice in an object in a string", `"{\"a\":1,\"a\":2}"`, "they are a string"},
		{"broken UTF-8", "{\"a\":\"\xff\"}", "not valid UTF-8 at byte 6"},
		{"surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "not valid UTF-8"},
		{"high surrogate alone", `{"a":"\ud83d"}`, "half of a surrogate pair"},
		{"low surrogate alone", `{"a":"\ude00"}`, "half of a surrogate pair"},
		{"high surrogate twice", `{"a":"\ud83d\ud83d"}`, "half of a surrogate pair"},
		{"high surrogate and a letter", `{"a":"\ud83dx"}`, "half of a surrogate pair"},
		{"surrogate in a key", `{"\ud83d":1}`, "half of a surrogate pair"},
		{"NUL", `{"a":"\u0000"}`, "NUL character"},
		{"NUL in a key", `{"\u0000":1}`, "NUL character"},
		{"raw NUL", "{\"a\":\"\x00\"}", "control character"},
		{"raw line break", "{\"a\":\"x\ny\"}", "control character"},
		{"unknown escape", `{"a":"\x41"}`, "begins no JSON escape"},
		{"short hex escape", `{"a":"\u12"}`, "begins no JSON escape"},
		{"bad hex escape", `{"a":"\u12g4"}`, "begins no JSON escape"},
		{"sign in hex escape", `{"a":"\u+123"}`, "begins no JSON escape"},
		{"leading zero", `{"a":01}`, "not a JSON number"},
		{"plus", `{"a":+1}`, "cannot start with '+'"},
		{"point at the end", `{"a":1.}`, "not a JSON number"},
		{"point at the start", `{"a":.5}`, "cannot start with '.'"},
		{"no exponent", `{"a":1e}`, "not a JSON number"},
		{"minus alone", `{"a":-}`, "not a JSON number"},
		{"hex number", `{"a":0x1}`, "a comma or"},
		{"huge exponent", `{"a":1e400}`, "too large"},
		{"largest float and a bit", `{"a":1.8e308}`, "too large"},
		{"exponent that overflows", `{"a":1e99999999999999999999}`, "too large"},
		{"tiny", `{"a":1e-400}`, "too small"},
		{"long number", `{"a":` + strings.Repeat("1", 101) + `}`, "101 characters long"},
		{"exact number", `{"a":0.` + strings.Repeat("1", 90) + `}`, "too exact"},
		{"too deep", `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, "more than 64 deep"},
		{"too deep in a string", `{"a":"` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `"}`,
			`"a": is of type "string", it must be "array"`},
		{"too long", `{"a":"` + strings.Repeat("x", tools.MaxArgumentBytes) + `"}`, "at most 262144 are allowed"},
		{"too many blanks", strings.Repeat(" ", tools.MaxArgumentBytes+1), "at most 262144 are allowed"},
		{"too long when canonical", `{"b":[` + strings.TrimSuffix(strings.Repeat("1e99,", 5000), ",") + `]}`,
			"at most 262144 are allowed"},
	}
	open := compile(t, anything)
	array := compile(t, `{"type":"object","properties":{"a":{"type":"array"}}}`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			schema := open
			if tt.name == "too deep in a string" {
				schema = array
			}
			got, fault := tools.CheckArguments(schema, tt.raw)
			if !strings.Contains(fault, tt.want) || !strings.HasPrefix(fault, "invalid arguments: ") ||
				!utf8.ValidString(fault) {
				t.Errorf("CheckArguments() = %.100s, fault %q; want a fault with %q", got.Canonical, fault, tt.want)
			}
			if len(fault) > 4000 {
				t.Errorf("the fault has %d bytes", len(fault))
			}
		})
	}
}

func TestDepthLimitIsExact(t *testing.T) {
	schema := compile(t, anything)
	deep := `{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`
	if _, fault := tools.CheckArguments(schema, deep); fault != "" {
		t.Errorf("64 levels: %s", fault)
	}
}

// TestDeepJSONIsRefused uses the deepest nesting that MaxArgumentBytes allows.
func TestDeepJSONIsRefused(t *testing.T) {
	schema := compile(t, anything)
	for _, unit := range []string{"[", `{"a":`} {
		raw := strings.Repeat(unit, 262_144/len(unit))
		_, fault := tools.CheckArguments(schema, raw)
		if !strings.Contains(fault, "more than 64 deep") {
			t.Errorf("fault = %q", fault)
		}
	}
}

const listing = `{"type":"object","additionalProperties":false,"required":["path","mode"],"properties":{
	"path":{"type":"string","minLength":1},
	"mode":{"enum":["fast","slow"]},
	"depth":{"type":"integer","minimum":1,"maximum":9},
	"tags":{"type":["null","array"],"items":{"type":"string"}},
	"filter":{"type":"object","properties":{"ids":{"type":"array","items":{"type":"integer"}}}},
	"note":{"type":["string","array"]}}}`

func TestSchemaFaults(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"missing", `{}`, `missing "path", "mode"`},
		{"everything at once", `{"depth":"x","mode":"odd","zip":1,"age":2}`,
			`missing "path"; unexpected "age", "zip"; "depth": is of type "string", it must be "integer"; "mode": enum: odd does not equal any of: [fast slow]`},
		{"nested", `{"path":"p","mode":"fast","filter":{"ids":[1,"x"]}}`,
			`"filter.ids[]": is of type "string", it must be "integer"`},
		{"null where a string is required", `{"path":null,"mode":"fast"}`,
			`"path": is of type "null", it must be "string"`},
		{"fraction for an integer", `{"path":"p","mode":"fast","depth":1.5}`,
			`"depth": is of type "number", it must be "integer"`},
		{"out of range", `{"path":"p","mode":"fast","depth":10}`, `"depth": maximum: 10 is greater than 9.`},
	}
	schema := compile(t, listing)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, fault := tools.CheckArguments(schema, tt.raw)
			if !strings.HasPrefix(fault, "invalid arguments: "+tt.want) {
				t.Errorf("fault = %q, want it to begin with %q", fault, tt.want)
			}
			if want :=
				`. Nothing was run. Send one JSON object that fits the tool's schema; required: "path", "mode".`; !strings.HasSuffix(fault, want) {
				t.Errorf("fault = %q, want it to end with %q", fault, want)
			}
		})
	}
}

// TestNullIsAbsent tests that null in an optional property that refuses null counts as
// absent.
func TestNullIsAbsent(t *testing.T) {
	const schema = `{"type":"object","additionalProperties":false,"required":["path"],"$defs":{"word":{"type":"string"},"maybe":{"type":["string","null"]}},"properties":{
		"path":{"type":"string"},
		"depth":{"type":"integer"},
		"tags":{"type":["null","array"]},
		"mode":{"enum":["fast","slow"]},
		"level":{"enum":["low",null]},
		"kind":{"const":"a"},
		"word":{"$ref":"#/$defs/word"},
		"either":{"anyOf":[{"type":"string"},{"type":"integer"}]},
		"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},
		"both":{"allOf":[{"type":"string"},{"minLength":1}]},
		"any":{},
		"several":{"type":["string","integer"]},
		"nothing":{"const":null},
		"one":{"oneOf":[{"type":"string"},{"type":"integer"}]},
		"one_or_none":{"oneOf":[{"type":"string"},{"type":"null"}]},
		"maybe_word":{"$ref":"#/$defs/maybe"},
		"filter":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"max":{"type":"integer"}}},
		"filters":{"type":"array","items":{"type":"object","properties":{"max":{"type":"integer"}}}}}}`
	for raw, want := range map[string]string{
		`{"path":"p","depth":null,"mode":null,"kind":null,"word":null,"either":null,"both":null}`: `{"path":"p"}`,
		`{"path":"p","several":null,"one":null}`:                                                  `{"path":"p"}`,
		`{"path":"p","nothing":null,"one_or_none":null,"maybe_word":null}`:                        `{"maybe_word":null,"nothing":null,"one_or_none":null,"path":"p"}`,
		`{"path":"p","tags":null,"level":null,"maybe":null,"any":null}`:                           `{"any":null,"level":null,"maybe":null,"path":"p","tags":null}`,
		`{"path":"p","filter":{"id":"x","max":null},"filters":[{"max":null}]}`:                    `{"filter":{"id":"x"},"filters":[{}],"path":"p"}`,
		`{"path":null}`:                                       `"path": is of type "null", it must be "string"`,
		`{"path":"p","zip":null}`:                             `unexpected "zip"`,
		`{"path":"p","filter":{"id":null}}`:                   `"filter.id": is of type "null", it must be "string"`,
		`{"path":"p","filters":[null]}`:                       `"filters[]": is of type "null", it must be "object"`,
		`{"path":"p","filter":"{\"id\":\"x\",\"max\":null}"}`: `{"filter":{"id":"x"},"path":"p"}`,
	} {
		args, fault := tools.CheckReadArguments(compile(t, schema), raw)
		if fault == "" && args.Canonical != want || fault != "" && !strings.HasPrefix(fault,
			"invalid arguments: "+want+". Nothing") {
			t.Errorf("%s: %q, fault %q", raw, args.Canonical, fault)
		}
	}
}

func TestFaultsAreBounded(t *testing.T) {
	schema := compile(t, listing)
	long := strings.Repeat("k", 10_000)
	var members []string
	for i := range 1000 {
		members = append(members, fmt.Sprintf(`"%s%d":0`, "key", i))
	}
	for name, raw := range map[string]string{
		"long key": `{"` + long + `":1}`, "long value": `{"path":["` + long + `"],"depth":"` + long + `"}`,
		"many keys": `{` + strings.Join(members, ",") + `}`,
	} {
		if _, fault := tools.CheckArguments(schema, raw); fault == "" || len(fault) > 3000 {
			t.Errorf("%s: the fault has %d bytes", name, len(fault))
		}
	}
}

func TestCoercion(t *testing.T) {
	tests := []struct {
		name, raw, want string
		coerced         bool
	}{
		{"nothing to do", `{"path":"p","mode":"fast","tags":["a"]}`, `{"mode":"fast","path":"p","tags":["a"]}`, false},
		{"array in a string", `{"path":"p","mode":"fast","tags":" [\"a\", \"b\"] "}`,
			`{"mode":"fast","path":"p","tags":["a","b"]}`, true},
		{"object in a string", `{"path":"p","mode":"fast","filter":"{\"ids\":[2]}"}`,
			`{"filter":{"ids":[2]},"mode":"fast","path":"p"}`, true},
		{"array in a string in an object in a string", `{"path":"p","mode":"fast","filter":"{\"ids\":\"[2]\"}"}`,
			`{"filter":{"ids":[2]},"mode":"fast","path":"p"}`, true},
		{"all in a string", `"{\"path\":\"p\",\"mode\":\"slow\"}"`, `{"mode":"slow","path":"p"}`, true},
		{"a string may be meant", `{"path":"p","mode":"fast","note":"[1]"}`,
			`{"mode":"fast","note":"[1]","path":"p"}`, false},
		{"a string is wanted", `{"path":"[1]","mode":"fast"}`, `{"mode":"fast","path":"[1]"}`, false},
	}
	schema := compile(t, listing)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, fault := tools.CheckReadArguments(schema, tt.raw)
			if diff := cmp.Diff(tools.Arguments{Canonical: tt.want, Coerced: tt.coerced},
				got); diff != "" || fault != "" {
				t.Errorf("fault %q, arguments (-want +got):\n%s", fault, diff)
			}
		})
	}
	for name, raw := range map[string]string{
		"an object for an array":  `{"path":"p","mode":"fast","tags":"{}"}`,
		"no JSON":                 `{"path":"p","mode":"fast","tags":"a, b"}`,
		"a number in a string":    `{"path":"p","mode":"fast","depth":"3"}`,
		"NUL in the string":       `{"path":"p","mode":"fast","tags":"[\"\\u0000\"]"}`,
		"what is in it is wrong":  `{"path":"p","mode":"fast","tags":"[1]"}`,
		"key twice in the string": `{"path":"p","mode":"fast","filter":"{\"ids\":[],\"ids\":[]}"}`,
	} {
		if got, fault := tools.CheckReadArguments(schema, raw); fault == "" {
			t.Errorf("%s: accepted as %s", name, got.Canonical)
		}
	}
}

func TestHash(t *testing.T) {
	// printf 'clock\0{}' | sha256sum
	if got, want := tools.Hash("clock", "{}"),
		"0d215ef4be85c5f9f35940ce1dff668b3fa3352683b8c6b519d25c12e200c1fd"; got != want {
		t.Errorf("Hash = %s, want %s", got, want)
	}
	if tools.Hash("a", "b") == tools.Hash("ab", "") {
		t.Error("name and arguments run into each other")
	}
}

func TestMalformedPlaceholder(t *testing.T) {
	for name, tt := range map[string]struct{ raw, want string }{
		"plain":  {`{"a":`, `{"malformed_arguments":true,"raw":"{\"a\":"}`},
		"broken": {"\xff\x00é\n", `{"malformed_arguments":true,"raw":"` + "\uFFFD" + `é\n"}`},
		"long":   {strings.Repeat("é", 501), `{"malformed_arguments":true,"raw":"` + strings.Repeat("é", 500) + `…"}`},
		"exact":  {strings.Repeat("é", 500), `{"malformed_arguments":true,"raw":"` + strings.Repeat("é", 500) + `"}`},
		"huge": {strings.Repeat("😀", 1<<20), `{"malformed_arguments":true,"raw":"` + strings.Repeat("😀",
			500) + `…"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tools.MalformedPlaceholder(tt.raw)); diff != "" {
				t.Errorf("placeholder (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzCheckArguments(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `{"path":"p","mode":"fast","depth":1.0}`, `{"path":"p","mode":"fast","tags":"[\"a\"]"}`,
		`{"path":"\ud83d\ude00\u0000","mode":"slow"}`, `{"n":[1e300,-0,0.10,1e99,12e-7]}`, `{"a":1,"a":2}`,
		`"{\"a\":[{}]}"`, "{\"a\":\"\xff\"}", strings.Repeat("[", 100), `{"any":{"deep":[null,true]}}`,
	} {
		f.Add(seed)
	}
	schemas := []string{anything, listing}
	var compiled []*tools.Schema
	var validators []*jsonschema.Resolved
	for _, text := range schemas {
		compiled = append(compiled, compile(f, text))
		var s jsonschema.Schema
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			f.Fatal(err)
		}
		v, err := s.Resolve(nil)
		if err != nil {
			f.Fatal(err)
		}
		validators = append(validators, v)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for i, schema := range compiled {
			args, fault := tools.CheckArguments(schema, raw)
			if fault != "" {
				if !utf8.ValidString(fault) || args != (tools.Arguments{}) {
					t.Fatalf("fault %q with %+v", fault, args)
				}
				continue
			}
			checkAccepted(t, schema, validators[i], args.Canonical)
		}
		if p := tools.MalformedPlaceholder(raw); !json.Valid([]byte(p)) || !utf8.ValidString(p) {
			t.Fatalf("placeholder %q", p)
		}
	})
}

// checkAccepted checks accepted arguments with independent code.
func checkAccepted(t *testing.T, schema *tools.Schema, validator *jsonschema.Resolved, canonical string) {
	t.Helper()
	if len(canonical) > tools.MaxArgumentBytes || !utf8.ValidString(canonical) || strings.Contains(canonical, "\x00") {
		t.Fatalf("unfit for the store: %q", canonical)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(canonical), &object); err != nil || object == nil {
		t.Fatalf("not an object: %q: %v", canonical, err)
	}
	if err := validator.Validate(object); err != nil {
		t.Fatalf("not valid by the schema: %q: %v", canonical, err)
	}
	if keys, depth := keysAndDepth(t, canonical); keys != countKeys(object) || depth > tools.MaxArgumentDepth {
		t.Fatalf("%d keys are written, %d are read, depth %d: %q", keys, countKeys(object), depth, canonical)
	}
	again, fault := tools.CheckArguments(schema, canonical)
	if fault != "" || again.Canonical != canonical || again.Coerced {
		t.Fatalf("not its own canonical form: %q became %+v, %q", canonical, again, fault)
	}
}

// keysAndDepth returns the number of keys in the text, duplicates included, and the
// nesting depth.
func keysAndDepth(t *testing.T, text string) (keys, depth int) {
	t.Helper()
	type level struct {
		object bool
		tokens int
	}
	var open []level
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		token, err := dec.Token()
		if err != nil {
			return keys, depth
		}
		delim, _ := token.(json.Delim)
		if delim == '}' || delim == ']' {
			open = open[:len(open)-1]
			continue
		}
		if n := len(open); n > 0 && open[n-1].object {
			if open[n-1].tokens%2 == 0 {
				keys++
			}
			open[n-1].tokens++
		}
		if delim != 0 {
			open = append(open, level{object: delim == '{'})
			depth = max(depth, len(open))
		}
	}
}

func countKeys(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		n = len(v)
		for _, member := range v {
			n += countKeys(member)
		}
	case []any:
		for _, item := range v {
			n += countKeys(item)
		}
	}
	return n
}

// TestWhoseTextsAreDecoded tests that only the calls of a tool without an effect may write an array as text.
func TestWhoseTextsAreDecoded(t *testing.T) {
	const raw = `{"ids":"[1]"}`
	for effect, decodes := range map[turnkeeper.Effect]bool{turnkeeper.EffectNone: true, turnkeeper.EffectKeyed: false,
		turnkeeper.EffectOnce: false, "": false} {
		tool := named("tool")
		tool.spec.Effect = effect
		tool.spec.Parameters = json.RawMessage(`{"type":"object","properties":{"ids":{"type":"array"}}}`)
		if args, fault := registry(t, tool).Check("tool", raw); (fault == "") != decodes || args.Coerced != decodes {
			t.Errorf("effect %q: %+v, fault %q", effect, args, fault)
		}
	}
}

// TestCheckAsWritten tests arguments that must be valid without any correction.
func TestCheckAsWritten(t *testing.T) {
	tool := named("tool")
	tool.spec.Effect = turnkeeper.EffectNone
	tool.spec.Parameters = json.RawMessage(
		`{"type":"object","properties":{"ids":{"type":"array"},"n":{"type":"integer"}}}`)
	r := registry(t, tool)
	for _, c := range []struct{ tool, raw, want string }{
		{"tool", `{"ids":[1],"n":2}`, ""},
		{"tool", `{ "n": 2.0 }`, ""},
		{"other", `{}`, "tool not found: other"},
		{"tool", `{"ids":"[1]"}`, `invalid arguments: "ids": is of type "string"`},
		{"tool", `{"n":null}`, "invalid arguments: a null is not valid"},
		{"tool", ``, "invalid arguments: a null is not valid"},
	} {
		if fault := r.CheckAsWritten(c.tool, c.raw); c.want == "" && fault != "" || !strings.HasPrefix(fault, c.want) {
			t.Errorf("%s of %s: %q, want %q", c.raw, c.tool, fault, c.want)
		}
	}
}
