package builtin_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// shelf is the tools.Outputs of a turn, by id.
type shelf map[string]tools.Output

func (s shelf) Find(_ context.Context, id string) (tools.Output, bool, error) {
	o, ok := s[id]
	return o, ok, nil
}

func (shelf) Wait(context.Context) ([]tools.Finished, bool, error) { return nil, false, nil }

func stored(text string) tools.Output {
	chars := []rune(text)
	return tools.Output{Chars: int64(len(chars)), Read: func(_ context.Context, from, to int64) (string, error) {
		return string(chars[from:min(to, int64(len(chars)))]), nil
	}}
}

func TestPatchOutput(t *testing.T) {
	binary, cut := stored("x"), stored("one two")
	binary.Binary, cut.Cut = true, true
	expired := stored("x")
	expired.Expired = true
	results := shelf{"a": stored("one two 日本 two three"), "b": binary, "cut": cut, "old": expired, "aaa": stored("aaa"),
		"big": stored(strings.Repeat("x", 6_000_000))}
	for name, c := range map[string]struct{ args, want, shown, refused string }{
		"an edit": {`{"id":"a","edits":[{"find":"日本","replace":"Japan"}]}`, "one two Japan two three",
			"Stored as output:new, 23 bytes. 1 edits were made, 1 strings replaced. a itself is unchanged.", ""},
		"by its handle": {`{"id":"output:a","edits":[{"find":"one","replace":""}]}`, " two 日本 two three",
			"Stored as output:new, 21 bytes. 1 edits were made, 1 strings replaced. output:a itself is unchanged.", ""},
		"all": {`{"id":"a","edits":[{"find":"two","replace":"2","all":true}]}`, "one 2 日本 2 three",
			"Stored as output:new, 20 bytes. 1 edits were made, 2 strings replaced. a itself is unchanged.", ""},
		"one on another": {
			`{"id":"a","edits":[{"find":"one","replace":"three"},{"find":"three","replace":"3","all":true}]}`,
			"3 two 日本 two 3",
			"Stored as output:new, 18 bytes. 2 edits were made, 3 strings replaced. a itself is unchanged.", ""},
		"of a beginning": {`{"id":"cut","edits":[{"find":"one","replace":"1"}]}`, "1 two",
			"Stored as output:new, 5 bytes. 1 edits were made, 1 strings replaced. cut itself is unchanged.", ""},
		"is there twice": {`{"id":"a","edits":[{"find":"two","replace":""}]}`, "", "",
			`{"error":"edit 1: its string is in the text more than once; make it longer, or say all. None of the edits was made"}`},
		"overlaps itself": {`{"id":"aaa","edits":[{"find":"aa","replace":""}]}`, "", "",
			`{"error":"edit 1: its string is in the text more than once; make it longer, or say all. None of the edits was made"}`},
		"is not there": {`{"id":"a","edits":[{"find":"one","replace":"1"},{"find":"one","replace":"1"}]}`, "",
			"", `{"error":"edit 2: its string is not in the text; none of the edits was made"}`},
		"is not there, all": {`{"id":"a","edits":[{"find":"four","replace":"","all":true}]}`, "", "",
			`{"error":"edit 1: its string is not in the text; none of the edits was made"}`},
		"nothing to find": {`{"id":"a","edits":[{"find":"","replace":"x"}]}`, "", "",
			`{"error":"edit 1 has nothing to find"}`},
		"no edits": {`{"id":"a","edits":[]}`, "", "", `{"error":"edits is empty: give at least one"}`},
		"unknown": {`{"id":"z","edits":[{"find":"a","replace":"b"}]}`, "", "",
			`{"error":"Unknown tool ID: z"}`},
		"expired": {`{"id":"old","edits":[{"find":"x","replace":"b"}]}`, "", "",
			`{"error":"expired: the output of old is no longer stored"}`},
		"binary": {`{"id":"b","edits":[{"find":"a","replace":"b"}]}`, "", "",
			`{"error":"that result is binary; only text can be edited"}`},
		"grows out of bounds": {`{"id":"big","edits":[{"find":"x","replace":"yy","all":true}]}`, "", "",
			`{"error":"edit 1 would make the text 12000000 bytes long; at most 10000000 are kept"}`},
	} {
		t.Run(name, func(t *testing.T) {
			call := tools.Call{Agent: "helper", Arguments: json.RawMessage(c.args), Outputs: results}
			got := tools.Execute(t.Context(), builtin.NewPatchOutput(), call, tools.ExecuteOptions{}).Result
			if c.refused != "" {
				if got.Text != c.refused || !got.IsError || got.ShowAs != nil {
					t.Errorf("%+v", got)
				}
				return
			}
			if got.Text != c.want || got.ShowAs == nil || got.ShowAs("new") != c.shown ||
				got.Incomplete != (name == "of a beginning") {
				t.Errorf("%+v", got)
			}
		})
	}
}
