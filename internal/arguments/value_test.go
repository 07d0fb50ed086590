package arguments_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"turnkeeper/internal/arguments"
)

// A writer writes random JSON values, and each of them in many ways.
type writer struct{ *rand.Rand }

var digitsNearby = []string{
	"0", "1", "-1", "2", "10", "0.1", "0.10000000000000000001", "1.5", "-0.25", "9007199254740992", "9007199254740993",
	"9223372036854775807", "9223372036854775808",
	"18446744073709551615", "18446744073709551616", "1122334455667788801", "1122334455667788802", "1122334455667788800",
	"-1122334455667788801",
	"123456789012345678901234567890", "123456789012345678901234567891", "1000000000000000000000000000000", "0.000001",
	"19.99", "1.00000000000000000001",
}

var textsNearby = []string{"", "a", "A", "\u00e9", "e\u0301", "1", "true", "null", "[]", "{}", "\"", "\\", "\n", "/",
	"\u2028", "\U0001f600", "output:x"}

// value returns a random value. Its numbers are json.Numbers.
func (w writer) value(depth int) any {
	switch n := w.IntN(8); {
	case n < 3 || depth == 0 && n > 5:
		return json.Number(digitsNearby[w.IntN(len(digitsNearby))])
	case n < 5:
		return textsNearby[w.IntN(len(textsNearby))]
	case n == 5:
		return []any{true, false, nil}[w.IntN(3)]
	case n == 6:
		list := make([]any, w.IntN(3))
		for i := range list {
			list[i] = w.value(depth - 1)
		}
		return list
	}
	return w.object(depth)
}

func (w writer) object(depth int) map[string]any {
	object := map[string]any{}
	for range w.IntN(3) {
		object[textsNearby[w.IntN(len(textsNearby))]] = w.value(depth - 1)
	}
	return object
}

// write writes a value with random space, order of keys, escapes and forms of numbers.
func (w writer) write(value any) string {
	space := func() string { return []string{"", "", " ", "\n\t"}[w.IntN(4)] }
	switch v := value.(type) {
	case map[string]any:
		var members []string
		for key, member := range v {
			members = append(members, space()+w.text(key)+space()+":"+w.write(member))
		}
		w.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		return "{" + strings.Join(members, ",") + space() + "}"
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, w.write(item))
		}
		return space() + "[" + strings.Join(items, ",") + space() + "]"
	case string:
		return space() + w.text(v)
	case json.Number:
		return space() + w.number(string(v)) + space()
	}
	text, _ := json.Marshal(value) // true, false or null
	return string(text)
}

func (w writer) text(text string) string {
	if w.IntN(2) == 0 {
		quoted, _ := json.Marshal(text)
		return string(quoted)
	}
	var b strings.Builder
	for _, r := range text {
		if r >= 0x10000 {
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		} else {
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	return `"` + b.String() + `"`
}

func (w writer) number(n string) string {
	switch whole := !strings.Contains(n, "."); {
	case w.IntN(2) == 0:
		return n
	case !whole:
		return n + []string{"0", "e0", "00E+0"}[w.IntN(3)]
	case w.IntN(2) == 0 || n == "0":
		return n + []string{".0", "e0", ".000E-0"}[w.IntN(3)]
	}
	return n + "0" + []string{"e-1", ".0E-01"}[w.IntN(2)]
}

// same reports whether two values are the same, with numbers compared as fractions.
func same(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && ratOf(x).Cmp(ratOf(y)) == 0
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, member := range x {
			if other, has := y[key]; !has || !same(member, other) {
				return false
			}
		}
		return true
	}
	return a == b
}

func ratOf(n json.Number) *big.Rat {
	if r, ok := new(big.Rat).SetString(string(n)); ok {
		return r
	}
	return new(big.Rat) // 0 with an exponent that a Rat does not take
}

// TestValuesAreNeverTheSameByAccident checks that two texts are equal by Equal, the canonical text, the hash, and a
// schema's const, enum and uniqueItems if and only if they are the same value.
func TestValuesAreNeverTheSameByAccident(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	w := writer{rand.New(rand.NewPCG(seed, 2))}
	equal := 0
	for range 1200 {
		a := w.object(2)
		b := w.object(2)
		switch w.IntN(3) {
		case 0:
			b = a
		case 1: // alike but for one number
			a["n"], b = w.value(0), map[string]any{}
			for key, member := range a {
				b[key] = member
			}
			b["n"] = w.value(0)
		}
		textA, textB := w.write(a), w.write(b)
		fail := func(what string) { t.Fatalf("seed %d: %s: %s and %s", seed, what, textA, textB) }
		valueA, errA := arguments.Parse(textA)
		valueB, errB := arguments.Parse(textB)
		if errA != nil || errB != nil {
			t.Fatalf("seed %d: %s: %v; %s: %v", seed, textA, errA, textB, errB)
		}
		want := same(a, b)
		if want {
			equal++
		}
		if valueA.Equal(valueB) != want {
			fail("Equal")
		}
		canonicalA, canonicalB := valueA.Canonical(), valueB.Canonical()
		if (canonicalA == canonicalB) != want || (arguments.Hash("t", canonicalA) == arguments.Hash("t",
			canonicalB)) != want {
			fail("canonical text and hash")
		}
		if again, err := arguments.Parse(canonicalA); err != nil || again.Canonical() != canonicalA {
			fail("canonical text of the canonical text")
		}
		for keyword, schema := range map[string]string{"const": `{"const":` + textA + `}`,
			"enum": `{"enum":["x",` + textA + `]}`} {
			_, _, fault := compile(t, ofN(schema)).Check(`{"n":`+textB+`}`, arguments.AsWritten)
			if (fault == "") != want {
				fail(keyword + ": " + fault)
			}
		}
		if _, _, fault := compile(t, ofN(`{"uniqueItems":true}`)).Check(`{"n":[`+textA+`,`+textB+`]}`,
			arguments.AsWritten); (fault != "") != want {
			fail("uniqueItems: " + fault)
		}
		if plainA, exact := valueA.Plain(); exact {
			if plainB, exact := valueB.Plain(); exact && (fmt.Sprintf("%#v", plainA) == fmt.Sprintf("%#v",
				plainB)) != want {
				fail("Plain")
			}
		}
	}
	if equal < 300 {
		t.Errorf("only %d of 1200 pairs were the same value", equal)
	}
}

func TestLookUps(t *testing.T) {
	t.Parallel()
	v, err := arguments.Parse(` {"text":"a","list":[1,"b"],"number":1.50,"yes":true,"no":false,"none":null} `)
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) arguments.Value {
		member, ok := v.Member(name)
		if !ok {
			t.Fatalf("no member %s", name)
		}
		return member
	}
	if text, ok := of("text").Text(); !ok || text != "a" {
		t.Errorf("text: %q, %t", text, ok)
	}
	items, ok := of("list").Items()
	if _, isText := items[0].Text(); !ok || len(items) != 2 || isText {
		t.Errorf("list: %v, %t", items, ok)
	}
	if n, ok := of("number").Number(); !ok || n != "1.5" {
		t.Errorf("number: %q, %t", n, ok)
	}
	if yes, ok := of("yes").Bool(); !ok || !yes {
		t.Errorf("yes: %t, %t", yes, ok)
	}
	if no, ok := of("no").Bool(); !ok || no {
		t.Errorf("no: %t, %t", no, ok)
	}
	if !of("none").Null() || of("yes").Null() {
		t.Error("null")
	}
	if _, ok := v.Member("other"); ok {
		t.Error("a member that is not there")
	}
	if members, ok := v.Members(); !ok || len(members) != 6 {
		t.Errorf("members: %v, %t", members, ok)
	}
	for _, other := range []arguments.Value{of("text"), of("list"), of("number"), of("none")} {
		_, isObject := other.Members()
		_, isMember := other.Member("text")
		_, isBool := other.Bool()
		if isObject || isMember || isBool {
			t.Errorf("%s is an object, has a member, or is a boolean", other.Canonical())
		}
	}
	if _, ok := v.Items(); ok {
		t.Error("an object has items")
	}
	if _, ok := v.Number(); ok {
		t.Error("an object is a number")
	}
	upper := func(text string) (string, error) { return strings.ToUpper(text), nil }
	if mapped, err := v.MapTexts(upper, "text"); err != nil ||
		mapped.Canonical() != `{"list":[1,"B"],"no":false,"none":null,"number":1.5,"text":"a","yes":true}` {
		t.Errorf("MapTexts: %s, %v", mapped.Canonical(), err)
	}
	if want := `{"list":[1,"b"],"no":false,"none":null,"number":1.5,"text":"a","yes":true}`; v.Canonical() != want {
		t.Errorf("MapTexts changed its value: %s", v.Canonical())
	}
}

// TestShortened tests arguments at the maximum length, and beyond it.
func TestShortened(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` }
	// items has n characters in canonical form once its text is cut.
	cut := strings.Repeat("y", 1000) + "…"
	items := func(n int) string {
		pad := n - len(`{"a":["",0],"b":""}`) - len(cut)
		return `{"a":["` + strings.Repeat("x", pad%2) + `",` + strings.Repeat(`0,`, pad/2) + `0],"b":"` +
			strings.Repeat("y", 5000) + `"}`
	}
	room := arguments.MaxBytes - len(text(0))
	for name, c := range map[string]struct{ canonical, want string }{
		"it fits":     {text(room), text(room)},
		"a long text": {text(room + 1), `{"a":"` + strings.Repeat("x", 1000) + `…"}`},
		"it just fits when it is short": {items(arguments.MaxBytes), strings.Replace(items(arguments.MaxBytes),
			strings.Repeat("y", 5000), cut, 1)},
		"many items": {items(arguments.MaxBytes + 1), "other"},
		"no JSON":    {strings.Repeat("{", arguments.MaxBytes+1), "other"},
	} {
		if got := arguments.Shortened(c.canonical, "other"); got != c.want {
			t.Errorf("%s: %d bytes, %.40s", name, len(got), got)
		}
	}
}
