package mcp_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

func TestResults(t *testing.T) {
	t.Parallel()
	dot, err := base64.StdEncoding.DecodeString(png)
	if err != nil {
		t.Fatal(err)
	}
	image := tools.Attachment{Name: "image", MediaType: "image/png", Bytes: dot}
	cases := map[string]struct {
		want    tools.Result
		outcome tools.Outcome
	}{
		"echo":  {want: tools.Result{Text: `{"text":"é"}`}},
		"image": {want: tools.Result{Bytes: dot, MediaType: "image/png"}},
		"mixed": {want: tools.Result{Text: "a picture:\n\n[link to the resource file:///x, x]",
			Attached: []tools.Attachment{image, {Name: "audio", MediaType: "audio/wav", Bytes: []byte{0, 1, 2}}}}},
		"resource": {want: tools.Result{Text: "[resource file:///a.txt]\nthe text of a",
			Attached: []tools.Attachment{{Name: "resource file:///b.bin", MediaType: "application/x-b",
				Bytes: []byte{0, 1, 2}}}}},
		"structured": {want: tools.Result{Text: `{"b":[1,2],"a":1}`}},
		"numbers":    {want: tools.Result{Text: `{"degrees": 20.0, "id": 9007199254740993}`}},
		"empty":      {want: tools.Result{Text: "The server answered with nothing."}},
		"rubbish":    {want: tools.Result{Text: "after rubbish"}},
		"fail":       {want: tools.Result{Text: "it went wrong", IsError: true}, outcome: tools.Failed},
		"protocol_error": {
			want: tools.Result{
				Text: `tool error: the MCP server "h" answered with an error of the protocol: no such thing (code -32602). Nothing was run`, IsError: true},
			outcome: tools.Failed,
		},
		"name.with/dots": {want: tools.Result{Text: `{"text":"é"}`}},
		"nothing_such": {
			want: tools.Result{Text: `denied: the MCP server "h" has no tool "nothing_such". Nothing was run.`,
				IsError: true}, outcome: tools.Failed},
	}
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "banner")
		for name, c := range cases {
			got := b.call(name, `{"text":"é"}`)
			if c.outcome == "" {
				c.outcome = tools.Succeeded
			}
			if diff := cmp.Diff(c.want, got.Result); diff != "" || got.Outcome != c.outcome {
				t.Errorf("%s: %s (-want +got):\n%s", name, got.Outcome, diff)
			}
		}
	})
}

// An answer that is too large fails only its own call.
func TestAGiantAnswer(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		other := make(chan tools.RunResult, 1)
		go func() { other <- b.callAs(context.Background(), tools.Call{Lane: "other"}, "slow", `{}`, patience) }()
		await(t, "the other call", func() bool { return cmp.Equal(marksIn(b.dir, "calls"), []string{"slow"}) })
		giants := []string{"giant", "giant_last"}
		if transport == overHTTP {
			giants = append(giants, "giant_json")
		}
		for _, giant := range giants {
			if got, want := b.call(giant, `{}`),
				`tool error: the MCP server "h" answered with more than 16 MiB, and so much is not taken. The call was made; what came of it is lost`; got.Outcome != tools.Failed || got.Result.Text != want {
				t.Errorf("%s: %s: %.300q", giant, got.Outcome, got.Result.Text)
			}
		}
		if got := <-other; got.Outcome != tools.Succeeded {
			t.Errorf("the other call: %s: %q", got.Outcome, got.Result.Text)
		}
		b.answers("echo", "{}")
		if transport == overStdio && len(marksIn(b.dir, "starts")) != 1 || transport == overHTTP &&
			b.http.sessionsMade() != 1 {
			t.Error("another session was made")
		}
	})
}

// The replacement of a large message is found wherever its id is.
func TestWhoseAnswerIsTooLarge(t *testing.T) {
	t.Parallel()
	instead := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-31616,"message":"the answer is too large"}}`
	}
	for message, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"result":{}}`:                                 instead("7"),
		`{"result":{"id":1,"a":[{"id":2}]},"jsonrpc":"2.0", "id" : "x\"},y" }`: instead(`"x\"},y"`),
		`{"result":"\",\"id\":1,\\","error":null,"id":3}` + "\n":               instead("3"),
		`{"id":4,"result":[[{"method":"m"}]]}`:                                 instead("4"),
		`{"id":5,"method":"m","params":{}}`:                                    "",
		`{"method":"m","params":{"id":6}}`:                                     "",
		`{"id":null,"error":{}}`:                                               "",
		`{"id":8,"result":{}`:                                                  "",
		`[{"id":9,"result":{}}]`:                                               "",
		`{"id":"` + strings.Repeat("x", 300) + `","result":{}}`:                "",
		strings.Repeat("x", 100):                                               "",
	} {
		for _, n := range []int{1, 3, 1000} {
			if got := mcp.Replacement(message, n); got != want {
				t.Errorf("%s, in pieces of %d: %s", message, n, got)
			}
		}
	}
}

// Events that are not too large pass unchanged, also before and after one that
// is too large.
func TestLargeEvents(t *testing.T) {
	t.Parallel()
	const small = ": hello\nevent: message\r\ndata: {\"id\":1}\r\n\r\nid: a\nretry: 1\ndata:\n\n\n"
	large := "id: b\nevent: message\ndata: {\"result\":\"" + strings.Repeat("x", 300) +
		"\",\ndata: \"id\":2}\nid: c\n\n"
	const replaced = "id: b\nevent: message\nid: c\ndata:" +
		`{"jsonrpc":"2.0","id":2,"error":{"code":-31616,"message":"the answer is too large"}}` + "\n\n"
	notice := "data: {\"method\":\"m\",\"params\":\"" + strings.Repeat("x", 300) + "\"}\n\n"
	tooLarge := "it sent a message of more than 16 MiB"
	for name, c := range map[string]struct{ stream, want, err string }{
		"small":      {small, small, ""},
		"cut":        {small + "data: {", small + "data: {", ""},
		"large":      {small + large + small, small + replaced + small, ""},
		"large, cut": {small + large[:200], small, ""},
		"no answer":  {small + notice + small, small, tooLarge},
		"endless":    {"data: " + strings.Repeat("x", 5000), "", tooLarge},
	} {
		for _, stream := range []io.Reader{strings.NewReader(c.stream),
			iotest.OneByteReader(strings.NewReader(c.stream))} {
			got, err := mcp.Events(stream, mcp.Limits{Frame: 100, Drop: 1000})
			if name == "large, cut" { // the rest of the event is not used
				got = got[:min(len(got), len(c.want))]
			}
			if got != c.want || fmt.Sprint(err) != map[bool]string{true: "<nil>", false: c.err}[c.err == ""] {
				t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
			}
		}
	}
}

// A message without an end ends the session.
func TestAMessageWithoutEnd(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		if got := b.call("huge", `{}`); got.Outcome != tools.InDoubt || transport == overStdio &&
			!strings.Contains(got.Result.Text, "it sent a message of more than") {
			t.Errorf("%s: %.300q", got.Outcome, got.Result.Text)
		}
		b.answers("echo", "{}")
	})
}

// An answer that cannot be read fails only its own call.
func TestNonsenseForAResult(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		other := make(chan tools.RunResult, 1)
		go func() { other <- b.callAs(context.Background(), tools.Call{Lane: "other"}, "slow", `{}`, patience) }()
		await(t, "the other call", func() bool { return cmp.Equal(marksIn(b.dir, "calls"), []string{"slow"}) })
		if got := b.call("nonsense", `{}`); got.Outcome != tools.InDoubt || !strings.Contains(got.Result.Text,
			"not a list") {
			t.Errorf("%s: %.200q", got.Outcome, got.Result.Text)
		}
		if got := <-other; got.Outcome != tools.Succeeded {
			t.Errorf("the other call: %s: %q", got.Outcome, got.Result.Text)
		}
		b.answers("echo", "{}")
		if transport == overStdio && len(marksIn(b.dir, "starts")) != 1 {
			t.Errorf("it was started %d times", len(marksIn(b.dir, "starts")))
		}
	})
}

// A line that is meant as an answer but cannot be read fails the call at once,
// before its timeout.
func TestAnAnswerThatIsNoMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t, overStdio, "")
	got := b.call("no_message", `{}`)
	if got.Outcome != tools.InDoubt || !strings.Contains(got.Result.Text, "it sent an answer that cannot be read") {
		t.Errorf("%s: %.300q", got.Outcome, got.Result.Text)
	}
	b.answers("echo", "{}")
}
