package prompt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
)

// TestWhereARequestDiffers checks what is said of each way in which a request does not extend another one.
func TestWhereARequestDiffers(t *testing.T) {
	system, asked := inference.Message{Role: inference.RoleSystem, Text: "You test."},
		inference.Message{Role: inference.RoleUser, Text: "Do it."}
	said := inference.Message{Role: inference.RoleAssistant, Text: "Done."}
	of := func(messages ...inference.Message) inference.Request {
		return inference.Request{Messages: messages, Tools: []inference.ToolDefinition{{Name: "look"}}}
	}
	with := func(text string, m inference.Message) inference.Message { m.Text = text; return m }
	offering := func(r inference.Request, names ...string) inference.Request {
		r.Tools = nil
		for _, name := range names {
			r.Tools = append(r.Tools, inference.ToolDefinition{Name: name})
		}
		return r
	}
	reasoned := said
	reasoned.Raw = []byte(`{"thought":true}`)
	before := of(system, asked, said)
	for _, c := range []struct {
		after           inference.Request
		want, was, said string
	}{
		{of(system, asked, said, asked), "", "", ""},
		{of(system, asked, said), "it has no message more", "", ""},
		{offering(before, "look", "read"), "tool 2 (read) was added", "",
			`{"Name":"read","Description":"","Parameters":null}`},
		{offering(before), "tool 1 (look) is missing", `{"Name":"look","Description":"","Parameters":null}`, ""},
		{offering(before, "lock"), "tool 1 (lock) differs from byte 12 on",
			`{"Name":"look","Description":"","Para…`, `{"Name":"lock","Description":"","Para…`},
		{of(with("You work.", system), asked, said), "the system prompt differs from byte 5 on", "You test.", "You work."},
		{of(system, with("Do it now.", asked), said), "message 2 (user) differs from byte 6 on", "Do it.", "Do it now."},
		{of(system), "message 2 (user) is missing", `{"Role":"user","Text":"Do it.","Calls":null…`, ""},
		{of(system, asked, reasoned), "message 3 (assistant) differs from byte 77 on", `…lID":"","Tool":"","Raw":null,…`,
			`…lID":"","Tool":"","Raw":{"tho…`},
	} {
		if got := prompt.Difference(before, c.after); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		d, _ := prompt.Diverges(before, c.after)
		part := func(text string, from, to int) string { return text[from:to] }
		if was, said := d.Excerpts(part); !begins(was, c.was) || !begins(said, c.said) {
			t.Errorf("%s: %q and %q, want %q and %q", c.want, was, said, c.was, c.said)
		}
	}
}

// begins reports whether a text begins with another one, or is it if that has no … at its end.
func begins(text, with string) bool {
	start, cut := strings.CutSuffix(with, "…")
	return text == with || cut && strings.HasPrefix(text, start)
}

// TestAnExcerptHasWholeCharactersAndNoSecret checks what is shown of long texts that differ within a secret.
func TestAnExcerptHasWholeCharactersAndNoSecret(t *testing.T) {
	secret := "hunter2-hunter2"
	text := func(end string) inference.Request {
		return inference.Request{Messages: []inference.Message{{Role: inference.RoleSystem,
			Text: strings.Repeat("ä", 40) + secret + end + strings.Repeat("ö", 60)}}}
	}
	d, ok := prompt.Diverges(text("!"), text("?"))
	was, is := d.Excerpts(func(text string, from, to int) string {
		at := strings.Index(text, secret)
		return text[from:at] + "[redacted]" + text[at+len(secret):to]
	})
	if want := "…äääää[redacted]"; !ok || !strings.HasPrefix(was, want+"!ö") || !strings.HasPrefix(is, want+"?ö") ||
		!strings.HasSuffix(was, "ö…") || !utf8.ValidString(was+is) {
		t.Errorf("%q, %q", was, is)
	}
}
