package arguments_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"turnkeeper/internal/arguments"
	"turnkeeper/internal/golden"
)

// badTexts are texts that are no arguments, with each mistake in the places where it can be.
var badTexts = []string{
	"", " ", "{", "}", "{]", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`,
	`{"a":1,}`, `{,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{'a':1}`, `{1:2}`,
	`{"a":1}{}`, `{"a":1} x`, `1 2`, "nul", "nullx", "True", "undefined", "\u00e9", "-", "+1", "01", "-01", "1.", ".5",
	"1.e2", "1e", "1e+", "1ex", "0x1", "--1", "1.2.3", "NaN", "-Infinity",
	`"`, `"a`, `"\`, `"\"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"\u12 4"`, `"\x41"`, `"\a"`, "\"a\nb\"", "\"\x00\"",
	"\"\x1f\"", `"\u0000"`, `"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\udc00\ud800"`,
	"\"\xff\"", "\xff", "{\"a\xc3\":1}", "\"\uFFFD\xed\xa0\x80\"",
	`{"a":1,"a":2}`, `{"a":{"b":1,"\u0062":2}}`, `[{"":1,"":2}]`, `{"` + strings.Repeat("k", 101) + `":1,"` +
		strings.Repeat("k", 101) + `":2}`, `{"` + strings.Repeat("k", 101) + `" 1}`,
	strings.Repeat("9", 101), strings.Repeat("9", 81), strings.Repeat("9", 80), "1e308", "1.7976931348623157e308",
	"1.7976931348623159e308", "1e309", "-1e400", "1e-306", "1e-307", "1e-308", "1e99999999999999999999",
	"0e99999999999999999999", "-0", "-0.0e5",
	"1e20", "1E+2", "100.0", "0.001e3", "12.50", "1" + strings.Repeat("0", 99), "1" + strings.Repeat("0", 98) + "e1",
	"1.5e100", "1.5e99", "1e98", "-1.5e99", "0." + strings.Repeat("0", 97) + "1", "-0." + strings.Repeat("0", 96) + "1",
	"1e-98", "1e-99",
	strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65),
	strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64), strings.Repeat(`{"a":`, 65) + "1" +
		strings.Repeat("}", 65),
	"[" + strings.Repeat("[],", 70) + "{}]",
	`{"b":1,"a":[true,false,null,"\/\b\f\n\r\t\u00e9\ud83c\udf0d\u007f\u0001"],"A":{}}`,
}

// TestWhatIsSaidOfTexts compares the canonical text or the fault of each text with testdata.
func TestWhatIsSaidOfTexts(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, text := range badTexts {
		value, err := arguments.Parse(text)
		said := value.Canonical()
		if err != nil {
			said = "fault: " + err.Error()
		}
		lines = append(lines, fmt.Sprintf("%.120q\n  %.300s", text, said))
	}
	golden.File(t, "testdata/texts.txt", strings.Join(lines, "\n")+"\n")
}

// TestParseAgreesWithTheStandardLibrary compares what is read of random texts with what encoding/json reads. Only what
// it takes for the same, or loses, is refused.
func TestParseAgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	w := writer{rand.New(rand.NewPCG(seed, 3))}
	const spoilers = `{}[]",:\u0nt1e+-. ` + "\x00\n\xff"
	taken := 0
	for range 5000 {
		text := []byte(w.write(w.value(3)))
		if w.IntN(3) > 0 {
			for range 1 + w.IntN(2) {
				at, spoiler := w.IntN(len(text)), spoilers[w.IntN(len(spoilers))]
				switch w.IntN(3) {
				case 0:
					text[at] = spoiler
				case 1:
					text = append(text[:at:at], text[at+1:]...)
				default:
					text = append(append(text[:at:at], spoiler), text[at:]...)
				}
				if len(text) == 0 {
					text = []byte("0")
				}
			}
		}
		value, err := arguments.Parse(string(text))
		var want, got any
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		decoder.UseNumber()
		valid := json.Valid(text) && decoder.Decode(&want) == nil
		switch {
		case err != nil && valid:
			if reason := err.Error(); !strings.Contains(reason, "twice") && !strings.Contains(reason, "UTF-8") &&
				!strings.Contains(reason, "surrogate") && !strings.Contains(reason, "NUL") &&
				!strings.Contains(reason, "too large, too small or too exact") {
				t.Fatalf("seed %d: %q is refused: %v", seed, text, err)
			}
		case err == nil && !valid:
			t.Fatalf("seed %d: %q is taken for %s", seed, text, value.Canonical())
		case err == nil:
			taken++
			decoder := json.NewDecoder(strings.NewReader(value.Canonical()))
			decoder.UseNumber()
			if err := decoder.Decode(&got); err != nil || !same(want, got) {
				t.Fatalf("seed %d: %q is taken for %s", seed, text, value.Canonical())
			}
		}
	}
	if taken < 1000 {
		t.Errorf("only %d of 5000 texts were taken", taken)
	}
}

// orders is a schema with all kinds of properties.
const orders = `{"type":"object","required":["id","lines"],"additionalProperties":false,"properties":{
	"id":{"type":"string","minLength":2,"pattern":"^[a-z]+$"},"lines":{"type":"array","minItems":1,"items":{"type":"object","required":["sum"],"properties":{"sum":{"type":"number","minimum":0,"multipleOf":0.01},"n":{"type":"integer"}}}},
	"state":{"enum":["new","paid",3]},"note":{"type":["string","null"]},"flag":{"type":"boolean"},"tags":{"type":["array","string"]},"when":{"const":"now"},"map":{"type":"object","additionalProperties":{"type":"integer"}},
	"any":{"anyOf":[{"type":"string"},{"type":"null"}]},"one":{"oneOf":[{"type":"string"},{"type":"number"}]},"all":{"allOf":[{"type":"string"},{"maxLength":3}]},"ref":{"$ref":"#/$defs/r"},"listed":{"enum":[null,1]},"fixed":{"const":null},"free":{}},
	"$defs":{"r":{"type":"object","properties":{"x":{"multipleOf":0.5}}}}}`

// TestWhatIsSaidOfArguments compares what Check makes of arguments, as they are written and if texts are decoded, with
// testdata.
func TestWhatIsSaidOfArguments(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 13 {
		many = append(many, fmt.Sprintf(`"extra%02d":1`, i))
	}
	with := func(members string) string { return `{"id":"ab","lines":[{"sum":1.25}]` + members + `}` }
	schema := compile(t, orders)
	open := compile(t,
		`{"type":"object","properties":{"a":{"type":"integer"}},"dependentRequired":{"a":["b"]},"minProperties":0}`)
	var lines []string
	show := func(of string, s *arguments.Schema, raw string) {
		lines = append(lines, fmt.Sprintf("%s %.200q", of, raw))
		check := func(how arguments.Read) string {
			args, coerced, fault := s.Check(raw, how)
			if fault == "" {
				fault = fmt.Sprintf("%s, coerced: %t", args.Canonical(), coerced)
			}
			return fault
		}
		written, decoded := check(arguments.AsWritten), check(arguments.Decoding)
		if lines = append(lines, "  "+written); decoded != written {
			lines = append(lines, "  decoding: "+decoded)
		}
	}
	for _, raw := range []string{
		with(""),
		with(
			`,"state":"paid","note":null,"flag":true,"tags":["x"],"when":"now","map":{"k":1},"any":null,"one":1,"all":"abc","ref":{"x":1.5},"listed":null,"fixed":null,"free":null`),
		with(`,"state":null,"flag":null,"when":null,"map":null,"one":null,"all":null,"ref":null,"tags":null`),
		`{}`, ``, ` `, `null`, `[]`, `1`, `"x"`, `true`, `{"id":null,"lines":null}`, `{"id":"ab"}`,
		`{"x":1,"lines":[{"sum":1}]}`, `{"id":"a","lines":[]}`, `{"id":"A1","lines":"x"}`, `{"ID":"ab"}`,
		`{"lines":[{"SUM":1}],"id":"ab"}`,
		with(`,"extra":1`), with("," + strings.Join(many, ",")), with(`,"state":"old"`), with(`,"state":4`),
		with(`,"note":7`), with(`,"flag":"true"`), with(`,"when":"later"`), with(`,"map":{"k":"v"}`), with(`,"any":1`),
		with(`,"one":true`),
		with(`,"all":"abcd"`), with(`,"ref":{"x":1.3}`), with(`,"listed":2`), with(`,"fixed":1`), with(`,"tags":{}`),
		with(`,"flag":0,"note":1,"map":2`),
		`{"id":"ab","lines":[{"sum":-1},{"sum":1.005}]}`, `{"id":"ab","lines":[{"n":1.5,"sum":1}]}`,
		`{"id":"ab","lines":[{}]}`, `{"id":"ab","lines":[null]}`, `{"id":"ab","lines":[{"sum":1,"n":null}]}`,
		`{"id":"ab","lines":"[{\"sum\":1}]"}`, `{"id":"ab","lines":["{\"sum\":1}"]}`,
		`{"id":"ab","lines":"{\"sum\":1}"}`, `{"id":"[]","lines":[{"sum":1}]}`, with(`,"map":"{\"k\":1}"`),
		with(`,"map":"[1]"`), with(`,"map":"{"`), with(`,"tags":"[1]"`), with(`,"map":" {} "`),
		`"{\"id\":\"ab\",\"lines\":[{\"sum\":1}]}"`, `"[]"`, `{"id":"` + strings.Repeat("é", 400) +
			`","lines":[{"sum":1}]}`, `{"` + strings.Repeat("k", 150) + `":1}`,
		`{"id":"ab","lines":[{"sum":1}],"id":"c"}`,
	} {
		show("orders", schema, raw)
	}
	for _, raw := range []string{`{"a":1}`, `{"a":1,"b":2}`, `{"b":2}`, `{"a":"x"}`, `{"a":1.5}`} {
		show("open", open, raw)
	}
	for _, raw := range []string{`{"a":1}`, `{"id":"ab","lines":[{"sum":1}]}`, `{"id":1,"lines":[],"flag":0}`, `[]`,
		`{"id":"ab","lines":[{"sum":1}],"x":1}`} {
		value, err := arguments.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("misfits of %s: %q, open: %q", raw, schema.Misfits(value),
			open.Misfits(value)))
	}
	golden.File(t, "testdata/arguments.txt", strings.Join(lines, "\n")+"\n")
}

// TestWhatIsSaidOfSchemas compares what is said of schemas that cannot be compiled with testdata, or the relaxed
// meaning of others.
func TestWhatIsSaidOfSchemas(t *testing.T) {
	t.Parallel()
	deep := func(n int) string {
		return `{"type":"object","properties":{"a":` + strings.Repeat(`{"items":`, n) + `{}` +
			strings.Repeat("}", n) + `}}`
	}
	double := `{"type":"object","$ref":"#/$defs/d0","$defs":{`
	for i := range 14 {
		double += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%[2]d"}]},`, i, i+1)
	}
	var lines []string
	for _, schema := range []string{
		``, `{`, `[]`, `1`, `{}`, `{"type":"array"}`, `{"type":["object"]}`, `{"type":"object","properties":[]}`,
		`{"type":"object","required":"a"}`, `{"type":7}`, `{"type":"object","type":"object"}`,
		`{"type":"object"}`, `{"$schema":"http://json-schema.org/draft-07/schema","type":"object"}`,
		`{"$schema":"https://json-schema.org/draft-07/schema#","type":"object"}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema#","type":"object"}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object"}`, `{"$schema":"other","type":"object"}`,
		ofN(`{"$ref":"#/$defs/x"}`), ofN(`{"$ref":"other.json"}`), ofN(`{"$dynamicRef":"#a"}`), ofN(`{"$id":"a"}`),
		`{"$id":"http://x/y","type":"object","properties":{"n":{"$ref":"http://x/y"}}}`,
		ofN(`{"$ref":"#/properties/n"}`), ofN(`{"$ref":"#"}`), ofN(`{"$anchor":"q","$ref":"#q"}`),
		ofN(`{"anyOf":[{"$ref":"#/properties/n"}]}`), ofN(`{"items":{"$ref":"#/properties/n"}}`),
		ofN(`{"pattern":"["}`), ofN(`{"pattern":"(?=a)"}`), ofN(`{"minimum":"1"}`), ofN(`{"minimum":1e400}`), deep(50),
		deep(70), double + `"d14":{}}}`,
	} {
		s, err := arguments.CompileSchema(json.RawMessage(schema))
		said := fmt.Sprintf("fault: %v", err)
		if err == nil {
			_, _, fault := s.Check(`{"n":"b"}`, arguments.AsWritten)
			said = fmt.Sprintf("%s; of a text: %q", s.Fault("x"), fault)
		}
		lines = append(lines, fmt.Sprintf("%.160q\n  %.400s", schema, said))
	}
	lookahead := `{"pattern":"^(?!a)"}`
	for _, keyword := range []string{
		`{"not":%s}`, `{"oneOf":[%s,{"type":"integer"}]}`, `{"if":%s,"then":{"type":"null"},"else":{"type":"boolean"}}`,
		`{"contains":%s,"maxContains":1}`, `{"anyOf":[%s,{"type":"integer"}]}`, `{"allOf":[%s,{"type":"integer"}]}`,
		`{"patternProperties":{"^(?!a)":{"type":"null"}},"additionalProperties":false}`,
		`{"properties":{"x":%s},"unevaluatedProperties":false}`, `{"prefixItems":[%s],"unevaluatedItems":false}`,
		`{"not":{"properties":{"x":%s}}}`,
	} {
		s := compile(t, ofN(strings.ReplaceAll(keyword, "%s", lookahead)))
		var taken []string
		for _, value := range []string{`"a"`, `"b"`, `1`, `null`, `true`, `["b","c"]`, `[1,2]`,
			`{"x":"b"}`, `{"y":1}`} {
			if _, _, fault := s.Check(`{"n":`+value+`}`, arguments.AsWritten); fault == "" {
				taken = append(taken, value)
			}
		}
		lines = append(lines, fmt.Sprintf("%s takes %s", keyword, strings.Join(taken, " ")))
	}
	golden.File(t, "testdata/schemas.txt", strings.Join(lines, "\n")+"\n")
}

// TestMapTextsStopsAtAnError checks that MapTexts maps the texts at any depth in the order of their names, and ends at
// the first error.
func TestMapTextsStopsAtAnError(t *testing.T) {
	t.Parallel()
	v, err := arguments.Parse(`{"d":"4","a":"1","c":[[{"x":"3"}],7,true],"b":{"y":{"z":"2"}},"e":"5"}`)
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	for last := range 7 {
		var seen []string
		mapped, err := v.MapTexts(func(text string) (string, error) {
			if seen = append(seen, text); len(seen) == last {
				return "lost", stop
			}
			return text + "!", nil
		})
		want := strings.Split("12345", "")
		if last > 0 && last < 6 {
			if want = want[:last]; !errors.Is(err, stop) || !mapped.Null() {
				t.Errorf("error at %d: %s, %v", last, mapped.Canonical(), err)
			}
		} else if all := `{"a":"1!","b":{"y":{"z":"2!"}},"c":[[{"x":"3!"}],7,true],"d":"4!","e":"5!"}`; err != nil ||
			mapped.Canonical() != all {
			t.Errorf("no error: %s, %v", mapped.Canonical(), err)
		}
		if fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("error at %d: it has seen %v", last, seen)
		}
	}
	list, err := arguments.Parse(`["a"]`)
	if same, err2 := list.MapTexts(func(string) (string, error) { return "", stop }); err != nil || err2 != nil ||
		!same.Equal(list) {
		t.Errorf("a list: %s, %v", same.Canonical(), err2)
	}
}

// TestMalformedPlaceholder checks the object that stands for arguments that are none.
func TestMalformedPlaceholder(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"": `""`, "{\"a\":\x00\xff": "\"{\\\"a\\\":\uFFFD\"", strings.Repeat("é", 500): `"` + strings.Repeat("é", 500) +
			`"`, strings.Repeat("é", 501): `"` + strings.Repeat("é", 500) + `…"`,
		strings.Repeat("\U0001f600", 501): `"` + strings.Repeat("\U0001f600", 500) + `…"`,
	} {
		if got := arguments.MalformedPlaceholder(raw); got != `{"malformed_arguments":true,"raw":`+want+`}` {
			t.Errorf("%.20q: %.100s", raw, got)
		}
	}
}
