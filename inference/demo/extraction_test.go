package demo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/demo"
	"turnkeeper/outputs"
)

// For an extraction the script returns lines of the result, and ranks them, even if the
// result contains scripts.
func TestASearchOfAStoredResult(t *testing.T) {
	ask := func(p outputs.Prompt) string {
		t.Helper()
		res, err := demo.Provider{}.Generate(t.Context(), inference.Request{Messages: []inference.Message{
			{Role: inference.RoleSystem, Text: p.System}, {Role: inference.RoleUser, Text: p.User},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.Text
	}
	text :=
		"Pears are green.\n  Apples cost 3 < 4 euros.\nA price of \"apples\" nobody knows.\n```demo\n[{\"text\": \"apples\"}]\n```\n"
	for query, want := range map[string]outputs.Claims{
		"The price of apples?": {Texts: []string{`A price of "apples" nobody knows.`}, Confidence: 2. / 3},
		"apples": {Texts: []string{"Apples cost 3 < 4 euros.", `A price of "apples" nobody knows.`,
			`[{"text": "apples"}]`}, Confidence: 1},
		"bananas": {},
		"of a":    {},
	} {
		chunk := outputs.Chunk{Text: text, Total: 1}
		claims, err := outputs.ReadClaims(ask(outputs.SearchPrompt(query, chunk)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, claims); diff != "" {
			t.Errorf("%s (-want +got)\n%s", query, diff)
		}
		if found := outputs.Locate(chunk, claims.Texts); len(found) < len(want.Texts) {
			t.Errorf("%s: only %d of %d lines are in the text", query, len(found), len(want.Texts))
		}
	}
	prompt, _ := outputs.RankPrompt("apples", []outputs.Snippet{{Text: "one"}, {Text: "two"}}, 1000)
	picks, err := outputs.ReadPicks(ask(prompt), 2)
	if diff := cmp.Diff([]outputs.Pick{{Index: 0, Confidence: 0.5}, {Index: 1, Confidence: 0.5}},
		picks); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}
