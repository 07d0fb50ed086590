package strictyaml_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/config/strictyaml"
)

func TestParseGivesKindsAndLines(t *testing.T) {
	got, err := strictyaml.Parse("a: 1\nb:\n  - x\n  - \"5\"\n  - true\nc: {d: ~}\ne: |\n  two\n  lines\n", 10)
	if err != nil {
		t.Fatal(err)
	}
	want := &strictyaml.Node{Kind: strictyaml.Map, Line: 10, Fields: []strictyaml.Field{
		{Key: "a", Line: 10, Value: &strictyaml.Node{Kind: strictyaml.Number, Line: 10, Value: "1"}},
		{Key: "b", Line: 11, Value: &strictyaml.Node{Kind: strictyaml.List, Line: 12, Items: []*strictyaml.Node{
			{Kind: strictyaml.Text, Line: 12, Value: "x"},
			{Kind: strictyaml.Text, Line: 13, Value: "5"},
			{Kind: strictyaml.Bool, Line: 14, Value: "true"},
		}}},
		{Key: "c", Line: 15, Value: &strictyaml.Node{Kind: strictyaml.Map, Line: 15, Fields: []strictyaml.Field{
			{Key: "d", Line: 15, Value: &strictyaml.Node{Kind: strictyaml.Null, Line: 15}},
		}}},
		{Key: "e", Line: 16, Value: &strictyaml.Node{Kind: strictyaml.Text, Line: 16, Value: "two\nlines\n"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseOfNothing(t *testing.T) {
	for _, source := range []string{"", "\n\n", "# words\n"} {
		if node, err := strictyaml.Parse(source, 1); node != nil || err != nil {
			t.Errorf("%q: %v, %v", source, node, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const notSupported = "YAML anchors, aliases, tags and directives are not supported: put text that begins with * & ! or % in quotes"
	for _, c := range []struct{ name, source, want string }{
		{"two documents", "a: 1\n---\nb: 2", "line 3: only one YAML document is allowed"},
		{"alias", "a: *b", "line 1: " + notSupported},
		{"tag", "a: !!str 5", "line 1: " + notSupported},
		{"directive", "%YAML 1.2\n---\na: 1", "line 1: " + notSupported},
		{"merge key", "<<: {a: 1}", "line 1: a key must be plain text"},
		{"number as key", "1: a", "line 1: a key must be plain text"},
		{"key of several parts", "? a\n: b", "line 1: a key must be plain text"},
		{"tabs", "a:\n\tb: 1", "line 2: invalid YAML: found character '\t' that cannot start any token"},
		{"deep brackets", strings.Repeat("[", 60000), "line 1: the settings are nested too deeply"},
		{"deep dashes", strings.Repeat("- ", 30000), "line 1: the settings are nested too deeply"},
		{"deep steps", steps(40), "line 34: the settings are nested too deeply"},
		{"long", strings.Repeat("x", strictyaml.MaxBytes+1),
			"line 1: the settings are larger than 64 KiB or 2000 lines"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := strictyaml.Parse(c.source, 1)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func steps(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String() + strings.Repeat(" ", n) + "b"
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2m": 2 * time.Minute, "1h30m": 90 * time.Minute, "5": 5 * time.Second,
		"0": 0, "250ms": 250 * time.Millisecond, "-3": -3 * time.Second,
	} {
		got, err := strictyaml.ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if again, err := strictyaml.ParseDuration(strictyaml.FormatDuration(got)); err != nil || again != got {
			t.Errorf("%s is written %s and read %v, %v", text, strictyaml.FormatDuration(got), again, err)
		}
	}
	for _, text := range []string{"", "soon", "1.5", "9999999999999999999", "90 s"} {
		if got, err := strictyaml.ParseDuration(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a: [1, {b: c}]\nd: |\n  e\n")
	f.Add("? a\n: &b *c !!d {<<: e}")
	f.Fuzz(func(t *testing.T, source string) {
		node, err := strictyaml.Parse(source, 1)
		if err != nil {
			return
		}
		check(t, node, 1+strings.Count(source, "\n")+strings.Count(source, "\r")) // YAML allows both line ends
	})
}

// check fails the test if a node has no kind or an invalid line, or a child is nil.
func check(t *testing.T, node *strictyaml.Node, lines int) {
	if node == nil {
		return
	}
	if node.Line < 1 || node.Line > lines+1 || node.Kind == "" {
		t.Fatalf("bad node %+v of %d lines", node, lines)
	}
	for _, item := range node.Items {
		if item == nil {
			t.Fatal("nil item")
		}
		check(t, item, lines)
	}
	for _, field := range node.Fields {
		if field.Value == nil {
			t.Fatal("nil value")
		}
		check(t, field.Value, lines)
	}
}

// TestLimitsOfADocument tries each limit, and one beyond it.
func TestLimitsOfADocument(t *testing.T) {
	for name, c := range map[string]struct {
		at   int
		make func(n int) string
	}{
		"bytes":       {64 << 10, func(n int) string { return "a: " + strings.Repeat("x", n-len("a: ")) }},
		"line ends":   {2000, func(n int) string { return "a: x" + strings.Repeat("\n", n) }},
		"brackets":    {32, func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }},
		"braces":      {32, func(n int) string { return strings.Repeat("{a: ", n) + "b" + strings.Repeat("}", n) }},
		"dashes":      {32, func(n int) string { return strings.Repeat("- ", n) + "a" }},
		"steps below": {32, steps},
	} {
		if _, err := strictyaml.Parse(c.make(c.at), 1); err != nil {
			t.Errorf("%d %s: %v", c.at, name, err)
		}
		if _, err := strictyaml.Parse(c.make(c.at+1), 1); err == nil {
			t.Errorf("%d %s are taken", c.at+1, name)
		}
	}
	for _, wide := range []string{strings.Repeat("- a\n", 100), strings.Repeat("- [a]\n", 100),
		"[" + strings.Repeat("[a], ", 100) + "]"} {
		if _, err := strictyaml.Parse(wide, 1); err != nil {
			t.Errorf("a document that is wide, not deep: %v", err)
		}
	}
}
