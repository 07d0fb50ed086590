package tools_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// TestNearlyRefusedJSON and its counterpart test the values on both sides of each bound.
func TestNearlyRefusedJSON(t *testing.T) {
	schema := compile(t, anything)
	text := strings.Repeat("x", tools.MaxArgumentBytes-len(`{"a":""}`))
	for name, c := range map[string]struct{ raw, want string }{
		"as long as may be": {`{"a":"` + text + `"}`, `{"a":"` + text + `"}`},
		"a number of 100 characters": {`{"a":0.` + strings.Repeat("0", 20) + strings.Repeat("1", 78) + `}`,
			`{"a":0.` + strings.Repeat("0", 20) + strings.Repeat("1", 78) + `}`},
		"a number of 80 digits": {`{"a":` + strings.Repeat("1", 80) + `}`,
			`{"a":` + strings.Repeat("1", 80) + `}`},
		"a number of 80 digits and zeros": {`{"a":` + strings.Repeat("1", 80) + `0000}`, `{"a":` + strings.Repeat("1",
			80) + `0000}`},
		"the smallest power":     {`{"a":1e-307}`, `{"a":1e-307}`},
		"the largest power":      {`{"a":1e308}`, `{"a":1e308}`},
		"blanks within a string": {`{"a":" b c "}`, `{"a":" b c "}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got, fault := tools.CheckArguments(schema, c.raw); got.Canonical != c.want || fault != "" {
				t.Errorf("%.200s, fault %q", got.Canonical, fault)
			}
		})
	}
	for name, c := range map[string]struct{ raw, want string }{
		"cut off before a value":        {`{"a":`, "ends too early"},
		"cut off in a hex escape":       {`{"a":"\u00`, "begins no JSON escape"},
		"cut off after a hex escape":    {`{"a":"\u0041`, "a string has no end"},
		"x for u":                       {`{"a":"\x0041"}`, "begins no JSON escape"},
		"half a pair and a word":        {`{"a":"\ud83dxude00"}`, "half of a surrogate pair"},
		"a control character for a hex": {"{\"a\":\"\\u\x10041\"}", "begins no JSON escape"},
		"broken at once":                {"\xff{}", "not valid UTF-8 at byte 0"},
		"broken behind a sign of it":    {"{\"a\":\"\uFFFD\xff\"}", "not valid UTF-8 at byte 9"},
		"leading zero and a fraction":   {`{"a":01.5}`, "not a JSON number"},
		"leading zero and an exponent":  {`{"a":01e5}`, "not a JSON number"},
		"no fraction, an exponent":      {`{"a":1.e5}`, "not a JSON number"},
		"81 digits":                     {`{"a":` + strings.Repeat("1", 81) + `}`, "too exact"},
		"too small a power":             {`{"a":1e-308}`, "too small"},
		"too large a power":             {`{"a":1e309}`, "too large"},
		"far too large a power":         {`{"a":1e9000000000000000}`, "too large"},
		"far too small a power":         {`{"a":1e-9000000000000000}`, "too small"},
	} {
		t.Run(name, func(t *testing.T) {
			got, fault := tools.CheckArguments(schema, c.raw)
			if !strings.Contains(fault, c.want) {
				t.Errorf("%.200s, fault %q, want %q", got.Canonical, fault, c.want)
			}
		})
	}
	if _, fault := tools.CheckArguments(schema, "5"); !strings.HasSuffix(fault, "fits the tool's schema.") {
		t.Errorf("nothing is required: %q", fault)
	}
}

// TestFaultsBelowTheFirstLevel tests each keyword on a property of an array item.
func TestFaultsBelowTheFirstLevel(t *testing.T) {
	for name, c := range map[string]struct{ inner, good, bad string }{
		"type":              {`{"type":"integer"}`, `1`, `"1"`},
		"integer":           {`{"type":"integer"}`, `1.0`, `1.5`},
		"enum":              {`{"enum":["fast","slow"]}`, `"fast"`, `"Fast"`},
		"const":             {`{"const":"x"}`, `"x"`, `"x "`},
		"minimum":           {`{"type":"number","minimum":1}`, `1`, `0.999`},
		"exclusive maximum": {`{"type":"number","exclusiveMaximum":1}`, `0.999`, `1`},
		"large integers": {`{"type":"integer","maximum":9007199254740992}`, `9007199254740992`,
			`9007199254740994`},
		"minimal length": {`{"type":"string","minLength":2}`, `"éé"`, `"é"`},
		"maximal length": {`{"type":"string","maxLength":2}`, `"éé"`, `"ééé"`},
		"pattern":        {`{"type":"string","pattern":"^a+$"}`, `"aa"`, `"ab"`},
		"required":       {`{"type":"object","required":["a"]}`, `{"a":null}`, `{"A":1}`},
		"additional": {`{"type":"object","additionalProperties":false,"properties":{"a":{}}}`, `{"a":1}`,
			`{"a":1,"b":1}`},
		"additional of a type": {`{"type":"object","additionalProperties":{"type":"string"}}`, `{"a":"1"}`, `{"a":1}`},
		"properties by pattern": {
			`{"type":"object","patternProperties":{"^s_":{"type":"string"}},"additionalProperties":false}`,
			`{"s_a":"1"}`, `{"s_a":1}`},
		"names of properties": {`{"type":"object","propertyNames":{"maxLength":1}}`, `{"a":1}`, `{"ab":1}`},
		"items":               {`{"type":"array","items":{"type":"string"}}`, `["a"]`, `["a",1]`},
		"unique items":        {`{"type":"array","uniqueItems":true}`, `[1,2]`, `[1,1.0]`},
		"unique large integers": {`{"type":"array","uniqueItems":true}`, `[9007199254740992,9007199254740993]`,
			`[9007199254740993,9007199254740993]`},
		"number of items":       {`{"type":"array","maxItems":1}`, `[1]`, `[1,2]`},
		"contains":              {`{"type":"array","contains":{"const":1},"maxContains":1}`, `[1,2]`, `[1,1]`},
		"not":                   {`{"not":{"type":"null"}}`, `0`, `null`},
		"one of":                {`{"oneOf":[{"type":"integer"},{"minimum":2}]}`, `1`, `3`},
		"condition":             {`{"if":{"type":"string"},"then":{"minLength":1}}`, `"a"`, `""`},
		"step":                  {`{"type":"number","multipleOf":0.01}`, `0.07`, `0.075`},
		"step of all of":        {`{"allOf":[{"multipleOf":0.01}]}`, `0.07`, `0.075`},
		"step of numbers alone": {`{"multipleOf":0.5}`, `"abc"`, `0.7`},
		"negative step of all":  {`{"allOf":[{"multipleOf":3}]}`, `-6`, `-7`},
		"reference":             {`{"$ref":"#/$defs/word"}`, `"a"`, `1`},
		"anchor":                {`{"$ref":"#word"}`, `"a"`, `1`},
		"dependent":             {`{"type":"object","dependentRequired":{"a":["b"]}}`, `{"b":1}`, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			schema := compile(t,
				`{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object","properties":{"a":{},"cell":`+c.inner+
					`}}}},"$defs":{"word":{"type":"string","$anchor":"word"}}}`)
			wrap := func(value string) string { return `{"rows":[{"a":0},{"a":0.5,"cell":` + value + `}]}` }
			if _, fault := tools.CheckArguments(schema, wrap(c.good)); fault != "" {
				t.Errorf("%s is refused: %s", c.good, fault)
			}
			if _, fault := tools.CheckArguments(schema, wrap(c.bad)); fault == "" {
				t.Errorf("%s is taken", c.bad)
			}
		})
	}
}

func TestFaultsOfTheWhole(t *testing.T) {
	numbers := func(n int) (schema, raw string) {
		var properties, members []string
		for i := range n {
			properties = append(properties, fmt.Sprintf(`"p%02d":{"type":"integer"}`, i))
			members = append(members, fmt.Sprintf(`"p%02d":"x"`, i))
		}
		return `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`,
			`{` + strings.Join(members, ",") + `}`
	}
	ten, tenBad := numbers(10)
	eleven, elevenBad := numbers(11)
	for name, c := range map[string]struct{ schema, raw, has, hasNot string }{
		"of no property": {`{"type":"object","minProperties":1}`, `{}`,
			`invalid arguments: minProperties: `, `"root"`},
		"of several properties": {`{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{"c":1}`,
			`invalid arguments: anyOf: `, "unexpected"},
		"an open schema": {`{"type":"object","properties":{"a":{"type":"integer"}}}`, `{"a":"x","z":1}`,
			`"a": is of type`, "unexpected"},
		"additional ones of a type": {`{"type":"object","additionalProperties":{"type":"string"},"required":["a"]}`,
			`{"z":"1"}`, `missing "a"`, "unexpected"},
		"additional ones by pattern": {
			`{"type":"object","additionalProperties":false,"patternProperties":{"^z":{}},"required":["a"]}`,
			`{"z":"1"}`, `missing "a"`, "unexpected"},
		"ten":    {ten, tenBad, `"p09"`, "more"},
		"eleven": {eleven, elevenBad, "; and 1 more.", `"p10"`},
		"a reference to what all fit": {
			`{"type":"object","allOf":[{"properties":{"b":{"type":"string"}}}],"properties":{"a":{"$ref":"#/allOf/0/properties/b"}}}`, `{"a":1}`, "invalid arguments: ", "panic"},
		"an array for an object": {listing, `{"path":"p","mode":"fast","filter":"[1]"}`,
			`"filter": is of type "string", it must be "object"`, "array"},
		"an object for an array": {listing, `{"path":"p","mode":"fast","tags":"{}"}`,
			`"tags": is of type "string", it must be one of "null`, "object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, fault := tools.CheckArguments(compile(t, c.schema), c.raw)
			fault, _, _ = strings.Cut(fault, " Nothing was run.")
			if !strings.Contains(fault, c.has) || strings.Contains(fault, c.hasNot) {
				t.Errorf("fault %q, want %q and no %q", fault, c.has, c.hasNot)
			}
		})
	}
}

// TestWhatIsNotRelaxed puts a pattern that cannot be checked next to keywords that can:
// these are still checked.
func TestWhatIsNotRelaxed(t *testing.T) {
	const beyond = `"x":{"type":"string","pattern":"^(?!x)"}`
	of := func(property string) string {
		return `{"type":"object","properties":{` + beyond + `,"a":` + property + `}}`
	}
	for name, c := range map[string]struct{ schema, good, bad string }{
		"not":       {of(`{"not":{"type":"null"}}`), `{"a":1}`, `{"a":null}`},
		"one of":    {of(`{"oneOf":[{"type":"integer"},{"minimum":2}]}`), `{"a":1}`, `{"a":3}`},
		"condition": {of(`{"if":{"type":"string"},"then":{"minLength":1}}`), `{"a":"b"}`, `{"a":""}`},
		"contains":  {of(`{"contains":{"const":1},"maxContains":1}`), `{"a":[1]}`, `{"a":[1,1]}`},
		"unevaluated": {of(`{"type":"object","properties":{"b":{}},"unevaluatedProperties":false}`), `{"a":{"b":1}}`,
			`{"a":{"c":1}}`},
		"by pattern": {
			of(`{"type":"object","patternProperties":{"^s_":{"type":"string"}},"additionalProperties":false}`),
			`{"a":{"s_":"1"}}`, `{"a":{"n":"1"}}`},
		"no pattern": {of(`{"type":"string"}`), `{"a":"1"}`, `{"a":1}`},
		"contains what cannot be checked": {
			of(`{"type":"array","contains":{"type":"string","pattern":"^(?!x)"},"maxContains":1}`),
			`{"a":["x","y"]}`, `{"a":[1]}`,
		},
		"unevaluated beside what cannot be checked": {
			of(
				`{"type":"object","patternProperties":{"^(?!x)":{}},"properties":{"n":{"type":"integer"}},"unevaluatedProperties":false}`),
			`{"a":{"y":1}}`, `{"a":{"n":"1"}}`,
		},
		"a tree": {`{"type":"object","properties":{` + beyond + `,"a":{"$ref":"#"}}}`,
			`{"a":{"a":{"x":"y"}}}`, `{"a":{"a":1}}`},
		"a range of a kind": {of(`{"type":"string","pattern":"^\\p{Script=Greek}+$"}`), `{"a":"b"}`, `{"a":1}`},
		"a name in letters": {of(`{"type":"string","pattern":"(?<größe>a)"}`), `{"a":"b"}`, `{"a":1}`},
		"many parentheses": {of(`{"type":"string","pattern":"` + strings.Repeat("(", 1001) + strings.Repeat(")",
			1001) + `"}`), `{"a":"b"}`, `{"a":1}`},
		"a large pattern": {of(`{"type":"string","pattern":"` + strings.Repeat(`\\pL{1000}`, 4000) + `"}`),
			`{"a":"b"}`, `{"a":1}`},
		"draft 7 by TLS": {
			`{"$schema":"https://json-schema.org/draft-07/schema","type":"object","properties":{"a":{"items":[{"type":"string"}]}}}`, `{"a":["b"]}`, `{"a":[1]}`},
		"a reference by id": {`{"$id":"urn:it","type":"object","properties":{"a":{"$ref":"urn:it"}}}`,
			`{"a":{}}`, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			schema := compile(t, c.schema)
			if _, fault := tools.CheckArguments(schema, c.good); fault != "" {
				t.Errorf("%s: %s", c.good, fault)
			}
			if _, fault := tools.CheckArguments(schema, c.bad); fault == "" {
				t.Errorf("%s was taken", c.bad)
			}
		})
	}
}

func TestSchemasThatAreRefused(t *testing.T) {
	checks := func(n int) string {
		return `{"type":"object","allOf":[` + strings.TrimSuffix(strings.Repeat(`{},`, n-1), ",") + `]}`
	}
	for name, c := range map[string]struct{ schema, want string }{
		"a dynamic reference":  {`{"type":"object","properties":{"a":{"$dynamicRef":"#x"}}}`, "$dynamicRef"},
		"an id below the root": {`{"type":"object","properties":{"a":{"$id":"urn:x"}}}`, "$id below its root"},
		"a fault before others": {`{"type":"object","allOf":[{"$ref":"#/nothing"},{}]}`,
			"only references within the schema"},
		"a check too many":  {checks(10_001), "checked more than 10000 times"},
		"as many as may be": {checks(10_000), ""},
	} {
		_, err := tools.CompileSchema(json.RawMessage(c.schema))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestRegisterAccepts(t *testing.T) {
	var all []tools.Tool
	want := map[string]turnkeeper.Effect{"default": "once", "none": "none", "keyed": "keyed", "once": "once"}
	for name, effect := range want {
		f := named(name)
		if name != "default" {
			f.spec.Effect = effect
		}
		all = append(all, f)
	}
	detached := named("detached")
	detached.spec.Detached, detached.spec.Timeout = true, turnkeeper.MaxDetached
	short := named("detached_shortly")
	short.spec.Detached, short.spec.Timeout = true, time.Second
	for name, change := range map[string]func(*tools.Spec){
		"detached_in_the_background": func(s *tools.Spec) {
			s.Detached, s.Timeout, s.Background = true, time.Second, new(true)
		},
		"transactional_not_in_it":    func(s *tools.Spec) { s.Transactional, s.Background = true, new(false) },
		"in_the_background":          func(s *tools.Spec) { s.Background = new(true) },
		"never_in_the_background":    func(s *tools.Spec) { s.Background = new(false) },
		"asks":                       func(s *tools.Spec) { s.AsksInput = true },
		"asks_not_in_the_background": func(s *tools.Spec) { s.AsksInput, s.Background = true, new(false) },
		"has_destinations":           func(s *tools.Spec) { s.Flow.Destinations = []string{"https://example.com/**"} },
	} {
		f := named(name)
		change(&f.spec)
		all = append(all, f)
	}
	r := registry(t, append(all, detached, short)...)
	for name, effect := range want {
		if spec, ok := r.Spec(name); !ok || spec.Effect != effect {
			t.Errorf("%s has effect %q", name, spec.Effect)
		}
		if tool, ok := r.Get(name); !ok || tool == nil {
			t.Errorf("%s is not there", name)
		}
	}
	if _, ok := r.Spec("None"); ok {
		t.Error("a tool is found by other letters")
	}
	if tool, ok := r.Get("None"); ok || tool != nil {
		t.Error("a tool is got by other letters")
	}
	for name, c := range map[string]struct {
		registry *tools.Registry
		ask      string
		want     string
	}{
		"empty": {registry(t), "x", `there is no tool "x"; no tools are registered`},
		"far":   {registry(t, named("clock")), "zzzzzzzz", `there is no tool "zzzzzzzz" (there are: clock)`},
		"near": {registry(t, named("clock")), "Clock",
			`there is no tool "Clock"; did you mean "clock"? (there are: clock)`},
	} {
		if _, err := c.registry.Subset([]string{c.ask}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestResolveWhereNoPropertyIsJudgedAlone uses a schema with a $ref into an allOf, which
// prevents validating each property alone.
func TestResolveWhereNoPropertyIsJudgedAlone(t *testing.T) {
	tool := named("pay")
	tool.spec.Parameters = json.RawMessage(
		`{"type":"object","allOf":[{"properties":{"b":{"maxLength":1}}}],"properties":{"a":{"$ref":"#/allOf/0/properties/b"}}}`)
	_, fault, err := registry(t, tool).Resolve("pay", `{"a":"b"}`, func(string) (string, error) { return "long", nil })
	if err != nil || !strings.Contains(fault, "an argument does not fit") {
		t.Errorf("fault %q, error %v", fault, err)
	}
}

func TestResolve(t *testing.T) {
	tool := named("pay")
	tool.spec.OutputIDs = []string{"output"}
	tool.spec.Parameters = json.RawMessage(
		`{"type":"object","required":["to"],"properties":{"to":{"type":"string","maxLength":8},
		"output":{"type":"string"},"lines":{"type":"array","items":{"type":"object","properties":{"text":{"type":"string","minLength":2}}}}},
		"anyOf":[{"properties":{"to":{"not":{"const":"NOBODY"}}}}]}`)
	r := registry(t, tool)
	upper := func(text string) (string, error) {
		if text == "fail" {
			return "", errors.New("gone")
		}
		return strings.ToUpper(text), nil
	}
	for name, c := range map[string]struct{ tool, canonical, want, fault, err string }{
		"at any depth": {"pay", `{"lines":[{"text":"ab"},{"text":"cd"}],"output":"ef","to":"gh"}`,
			`{"lines":[{"text":"AB"},{"text":"CD"}],"output":"ef","to":"GH"}`, "", ""},
		"keys stay":       {"pay", `{"to":"a","x":{"key":"b"}}`, `{"to":"A","x":{"key":"B"}}`, "", ""},
		"an unknown tool": {"Pay", `{}`, "", "tool not found: Pay", ""},
		"not an object":   {"pay", `[]`, `[]`, "", ""},
		"not JSON":        {"pay", `{`, "", "", "a key in double quotes"},
		"the value fails": {"pay", `{"lines":[{"text":"fail"}],"to":"a"}`, "", "", "gone"},
		"it does not fit": {"pay", `{"to":"ßßßßßßßßß"}`, "",
			`invalid arguments: with the stored text in its place, the argument "to" does not fit the tool's schema. Nothing was run.`, ""},
		"no single argument": {"pay", `{"to":"nobody"}`, "",
			`invalid arguments: with the stored text in its place, an argument does not fit the tool's schema. Nothing was run.`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, fault, err := r.Resolve(c.tool, c.canonical, upper)
			if got != c.want || fault != c.fault || (err == nil) != (c.err == "") || err != nil &&
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("%s, fault %q, error %v", got, fault, err)
			}
		})
	}
}
