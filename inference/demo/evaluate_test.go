package demo

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"text/template"

	"turnkeeper/internal/testrun"
)

// agree renders a template with evaluate and with text/template, and compares the results and the errors.
func agree(t *testing.T, source string) {
	t.Helper()
	c := conversation{message: "Look at https://a.example/x\nplease", notice: "", results: []result{
		{name: "read", text: `{"a":[1,{"b":"c"}]}`}, {name: "read", text: "Two\n  two tonnes\n"}, {name: "note", text: "x"},
	}}
	want, theirErr := standard(source, conversation{}) // compile tries a template without a conversation
	if theirErr == "" {
		want, theirErr = standard(source, c)
	}
	p, err := compile(source)
	got := ""
	if err == nil {
		left := maxRendered
		got, err = p.render(c, &left)
	}
	ourErr := ""
	if err != nil {
		ourErr = err.Error()
	}
	if ourErr != theirErr || err == nil && got != want {
		t.Errorf("%s\ngives %q, %s\n want %q, %s", source, got, ourErr, want, theirErr)
	}
}

// standard returns what text/template makes of a source.
func standard(source string, c conversation) (text, fault string) {
	theirs := template.FuncMap{
		"message": func() string { return c.message }, "notice": func() string { return c.notice },
		"count": func(tool string) int { return len(c.of(tool)) }, "result": c.result,
		"results": func(tool string) string { return strings.Join(c.of(tool), "\n\n") }, "field": field, "match": match,
		"contains": func(part, text string) bool { return strings.Contains(text, part) }, "lines": lines, "first": first,
		"oneline": oneLine, "trim": strings.TrimSpace, "lower": strings.ToLower, "json": quoted,
	}
	var out strings.Builder
	parsed, err := template.New("").Funcs(theirs).Parse(source)
	if err == nil {
		err = parsed.Execute(&out, nil)
	}
	if err != nil {
		return "", templateFault(err).Error()
	}
	return out.String(), ""
}

// TestTemplatesAreThoseOfTheStandardLibrary renders templates of every kind.
func TestTemplatesAreThoseOfTheStandardLibrary(t *testing.T) {
	for _, source := range []string{
		`{{message}}`, `a {{- message -}} b`, `{{/* nothing */}}x`, `{{notice}}`, `{{count "read"}}`, `{{count "no"}}`, `{{results "read"}}`,
		`{{result "read" 1 | field "a.1.b"}}`, `{{result "read" 3}}`, `{{result "read" 0}}`, `{{result "read" 1 2}}`, `{{result}}`, `{{result 1}}`, `{{result "read" "x"}}`,
		`{{1 | result "read"}}`, `{{"read" | result}}`, `{{"x" | result "read"}}`, `{{lines "TONNES" (result "read")}}`, `{{first 3 message}}`, `{{first 0 message}}`,
		`{{first message 3}}`, `{{first 'a' message}}`, `{{first 1e1 message}}`, `{{first 1.5 message}}`, `{{first true message}}`, `{{if message}}{{first (count "read") message}}{{end}}`, `{{first notice message}}`,
		`{{message | trim | lower | json}}`, `{{trim 1}}`, `{{trim .}}`, `{{trim true}}`, `{{trim}}`, `{{trim "a" "b"}}`, `{{"a" | trim "b"}}`, `{{match (trim "(") message}}`, `{{match message message}}`,
		`{{if message}}yes{{else}}no{{end}}`, `{{if notice}}yes{{else if count "read"}}else{{end}}`, `{{if 0}}a{{end}}`, `{{if 0.0}}a{{else}}b{{end}}`, `{{if .}}a{{else}}b{{end}}`,
		`{{with match "https?://\\S+" message}}<{{.}}>{{end}}`, `{{with notice}}a{{else with message}}{{.}}{{else}}c{{end}}`, `{{with count "read"}}{{first . message}}{{end}}`,
		`{{$x := message}}{{$x}}`, `{{$x := "a"}}{{if true}}{{$x = "b"}}{{$x := "c"}}{{$x}}{{end}}{{$x}}`, `{{with $x := "a"}}{{$x}}{{.}}{{end}}`, `{{$}}`, `{{.}}`, `{{$ | trim}}`,
		`{{true}} {{false}} {{1}} {{-7}} {{0x1F}} {{0x1p4}} {{'a'}} {{1.5}} {{1e3}} {{"q\n"}} {{1_000}}`, "{{`raw`}}",
		`{{18446744073709551615}}`, `{{(1)}}`, `{{1 2}}`, `{{"a" | 1}}`, `{{(message) "x"}}`, `{{. "x"}}`, `{{$ "x"}}`, `{{$x := 1}}{{2 | $x}}`,
		`{{and}}`, `{{and 1 0 (first 0 "x")}}`, `{{and 1 "b"}}`, `{{or 0 "" "c"}}`, `{{or 0 ""}}`, `{{or 1 (first 0 "x")}}`, `{{"z" | and "y"}}`, `{{"z" | or "y"}}`, `{{"" | or ""}}`, `{{not 1}}`, `{{not}}`, `{{not 1 2}}`, `{{not .}}`,
		`{{eq 1 1}}`, `{{eq "a" "b" "a"}}`, `{{eq 1}}`, `{{eq}}`, `{{eq 1 "a"}}`, `{{eq 1 1.0}}`, `{{eq . "a"}}`, `{{eq . .}}`, `{{eq true true}}`, `{{ne 1 2}}`, `{{ne 1 2 3}}`, `{{ne "a" 1}}`, `{{"a" | eq "a"}}`,
		`{{lt 1 2}}`, `{{lt 1 "a"}}`, `{{lt true false}}`, `{{lt . 1}}`, `{{lt 1 .}}`, `{{le "a" "a"}}`, `{{gt 1.5 0.5}}`, `{{ge 1 2}}`, `{{gt 1}}`, `{{le 1 2 3}}`, `{{lt 1 true}}`,
		"first\n{{first 0 message}}", "first\n\n{{ $x := 1 }}{{ trim $x }}", `{{if first 0 "x"}}a{{end}}`, `{{with trim 1}}a{{end}}`, `{{eq (first 0 "x") "x"}}`, `{{count (count "read")}}`, `{{message | count | first 1}}`,
	} {
		agree(t, source)
	}
}

// TestNestedTemplatesAreThoseOfTheStandardLibrary renders random templates, whose blocks change the dot and the variables of those in them.
func TestNestedTemplatesAreThoseOfTheStandardLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	value := func() string {
		return pick(".", "$", "$x", "$y", "message", "notice", `"a"`, `""`, "0", "7", `(count "read")`, "(trim .)", "(eq . $x)", `(or . "b")`, "(and $x .)")
	}
	var block func(depth int) string
	block = func(depth int) string {
		if depth == 0 {
			return "{{" + value() + "}}"
		}
		switch inner := func() string { return block(depth - 1) }; random.IntN(6) {
		case 0:
			return fmt.Sprintf("{{if %s}}%s{{else}}%s{{end}}", value(), inner(), inner())
		case 1:
			return fmt.Sprintf("{{with %s}}%s{{else}}%s{{end}}", value(), inner(), inner())
		case 2:
			return fmt.Sprintf("{{with $x := %s}}%s{{end}}%s", value(), inner(), inner())
		case 3:
			return fmt.Sprintf("{{$y = %s}}%s", value(), inner())
		case 4:
			return fmt.Sprintf("{{if %s}}{{$x := %s}}%s{{else with %s}}%s{{end}}%s", value(), value(), inner(), value(), inner(), inner())
		default:
			return inner() + " " + inner()
		}
	}
	for range testrun.Count(500, 20_000) {
		agree(t, `{{$x := "x"}}{{$y := 1}}`+block(1+random.IntN(4)))
	}
}
