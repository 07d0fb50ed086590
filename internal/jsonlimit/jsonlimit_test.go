package jsonlimit_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"turnkeeper/internal/jsonlimit"
)

func sizeOf(t testing.TB, text string) jsonlimit.Size {
	t.Helper()
	s := jsonlimit.NewScanner(jsonlimit.Limits{})
	if err := errors.Join(s.Feed([]byte(text)), s.End()); err != nil {
		t.Fatal(err)
	}
	return s.Size()
}

func TestCounts(t *testing.T) {
	for text, want := range map[string][2]int{ // depth, values
		`0`: {0, 1}, ` "a\"b\u00e9" `: {0, 1}, `[]`: {1, 1}, `[[],[[]]]`: {3, 4}, `{}`: {1, 1},
		`{"a":{"b":[1,2,null]},"c":true}`: {3, 10}, `[-0.5e+3, 1E2, "[[["]`: {1, 4},
	} {
		if got := sizeOf(t, text); got.Depth != want[0] || got.Values != want[1] || got.Bytes != int64(len(text)) {
			t.Errorf("%s: %+v, want depth %d, %d values", text, got, want[0], want[1])
		}
	}
}

func TestLimits(t *testing.T) {
	l := jsonlimit.Limits{Bytes: 40, Depth: 3, Values: 8, Memory: 700}
	for text, says := range map[string]string{
		`[[[0]],1,2,3]`:                      "",
		`"` + strings.Repeat("x", 38) + `"`:  "",
		`"` + strings.Repeat("x", 39) + `"`:  "it has more than 40 bytes of JSON",
		`[[[[]]]]`:                           "it has more than 3 levels of nested JSON objects and arrays",
		`[1,2,3,4,5,6,7]`:                    "",
		`[1,2,3,4,5,6,7,8]`:                  "it has more than 8 JSON values",
		`[{"":1},{"":1}]`:                    "it has more than 700 bytes of memory for its JSON values",
		`[`:                                  "unexpected end of the JSON text",
		`[}`:                                 `invalid character '}' at byte 1 of the JSON text`,
		strings.Repeat(" ", 50):              "it has more than 40 bytes of JSON",
		strings.Repeat("[", 20) + "no JSON ": "it has more than 3 levels of nested JSON objects and arrays",
	} {
		got := ""
		if err := l.Check([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != says {
			t.Errorf("%s: %q, want %q", text, got, says)
		}
	}
}

func TestItems(t *testing.T) {
	l := jsonlimit.Limits{Items: []jsonlimit.Items{{In: "result", Name: "tools", What: "tools", Max: 2, Memory: 1000}}}
	for text, ok := range map[string]bool{
		`{"id":1,"result":{"tools":[{"a":[1,2,3]},{}],"more":[1,2,3]}}`:     true,
		`{"id":1,"result":{"x":0,"tools":[{},{},{}]}}`:                      false,
		`{"result":{"TOOLS":[0,0,0]}}`:                                      false,
		`{"re\u0073ult":{"\u0074ools":[0,0,0]}}`:                            false,
		`[{"result":{"tools":[0,0]}},{"result":{"tools":[0]}}]`:             false,
		`{"result":{"tools":[0,0],"tools":[0]}}`:                            false,
		`{"result":{"tools":{"a":0,"b":0,"c":0}}}`:                          false,
		`{"result":{"tools":[[0,0,0,0],{"tools":[1,2,3]}]}}`:                true,
		`{"tools":[0,0,0],"a":{"tools":[0,0,0]},"result":[{"more":[0,0]}]}`: true,
		`{"result":{"toolsets":[0,0,0]}}`:                                   true,
	} {
		for _, piece := range []int{1, len(text)} {
			s := jsonlimit.NewScanner(l)
			for rest := text; rest != ""; {
				n := min(piece, len(rest))
				_ = s.Feed([]byte(rest[:n]))
				rest = rest[n:]
			}
			if err := s.End(); ok != (err == nil) || !ok && err.Error() != "it has more than 2 tools" {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	s := jsonlimit.NewScanner(l)
	if err := s.Feed([]byte(`{"result":{"tools":[1,1]}}`)); err != nil || s.Size().Memory-sizeOf(t,
		`{"result":{"tools":[1,1]}}`).Memory != 2000 {
		t.Error(err, s.Size())
	}
}

func TestReads(t *testing.T) {
	l := jsonlimit.Limits{Bytes: 5, Values: 2}
	if text, err := l.ReadAll(strings.NewReader("[123]")); err != nil || string(text) != "[123]" {
		t.Error(string(text), err)
	}
	if _, err := l.ReadAll(strings.NewReader("[1234]")); err == nil || err.Error() != "it has more than 5 bytes" {
		t.Error(err)
	}
	if text, err := l.ReadStart(strings.NewReader("[1234]")); err != nil || string(text) != "[1234" {
		t.Error(string(text), err)
	}
	var into []int
	if err := l.Unmarshal([]byte("[12]"), &into); err != nil || len(into) != 1 {
		t.Error(into, err)
	}
	if err := l.Unmarshal([]byte("[1,2]"), &into); err == nil || len(into) != 1 {
		t.Error(into, err)
	}
}

// TestMemory checks that the estimate is not below what encoding/json allocates and holds for values,
// and not above four times that.
func TestMemory(t *testing.T) {
	many := func(item string) string { return "[" + strings.Repeat(item+",", 50_000) + item + "]" }
	members := make([]string, 50_000)
	for i := range members {
		members[i] = `"` + strings.Repeat("k", i%50) + string(rune('a'+i%26)) + strings.Repeat("z", i%1000) + `":0`
	}
	for name, text := range map[string]string{
		"empty arrays": many("[]"), "empty objects": many("{}"), "numbers": many("1"), "strings": many(`"x"`),
		"empty strings":       many(`""`),
		"objects of a member": many(`{"":0}`), "objects of nine": many(
			`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0}`),
		"arrays of one": many(`[0]`), "deep": strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "one object": "{" +
			strings.Join(members, ",") + "}",
		"escapes": many(`"\u65e5\n"`), "booleans": many("true"),
	} {
		t.Run(name, func(t *testing.T) {
			estimate := sizeOf(t, text).Memory
			before := heap()
			var value any
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				t.Fatal(err)
			}
			held := int64(heap()) - int64(before)
			runtime.KeepAlive(value)
			if t.Logf("%d bytes hold %d, estimated as %d", len(text), held, estimate); held > estimate ||
				estimate > 5*held+(64<<10) {
				t.Errorf("%d bytes are held, and the estimate is %d", held, estimate)
			}
		})
	}
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// FuzzScanner checks that the scanner accepts what encoding/json accepts, in any pieces, and that its
// counts are those of encoding/json's tokens.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e+7,true,null,"\u00e9\"\\"],"a":{}}`, `[]`, ` 0 `, `-`, `01`, `1.`, `1e`, `"\x"`, `"\u12g4"`,
		"\"\x00\"", "\"\xff\"", `[1,]`, `{,}`, `{"a"}`,
		`{"a":1,}`, `tru`, `nulll`, `[[[]]`, `1 2`, `{1:2}`, "\xef\xbb\xbf1", "", " ", `"a`, `-0`, `-01`, `0e-0`, `[}`,
		`{]`, `{"a":1]`,
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		s := jsonlimit.NewScanner(jsonlimit.Limits{})
		var err error
		for rest := text; len(rest) > 0; {
			n := min(len(rest), max(piece, 1))
			_ = s.Feed(rest[:n])
			rest = rest[n:]
		}
		if err = s.End(); (err == nil) != json.Valid(text) {
			t.Fatalf("%q: %v, json.Valid is %v", text, err, json.Valid(text))
		}
		if err != nil {
			return
		}
		if depth, values := tokens(text); depth != s.Size().Depth || values != s.Size().Values {
			t.Fatalf("%q: %+v, want depth %d, %d values", text, s.Size(), depth, values)
		}
		exact := jsonlimit.Limits{Bytes: s.Size().Bytes, Depth: s.Size().Depth, Values: s.Size().Values,
			Memory: s.Size().Memory}
		if err := exact.Check(text); err != nil {
			t.Fatalf("%q at its own size: %v", text, err)
		}
		if exact.Values--; exact.Values > 0 && exact.Check(text) == nil {
			t.Fatalf("%q passes with a value less", text)
		}
	})
}

func tokens(text []byte) (depth, values int) {
	d, open := json.NewDecoder(strings.NewReader(string(text))), 0
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return depth, values
		}
		switch token {
		case json.Delim(']'), json.Delim('}'):
			open--
			continue
		case json.Delim('['), json.Delim('{'):
			open++
		}
		values, depth = values+1, max(depth, open)
	}
}

func BenchmarkScanner(b *testing.B) {
	text := []byte("[" + strings.Repeat(`{"name":"some text of a usual length","size":12345},`, 10_000) + "0]")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := (jsonlimit.Limits{Values: 1 << 30}).Check(text); err != nil {
			b.Fatal(err)
		}
	}
}
