package agentturn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

const document = "head é日😀 needle tail" // 20 characters

// handleBench returns a bench with tools whose results are stored, binary, failed,
// incomplete, too large and small, and with a tool of the given effect that takes
// handles. That tool is returned too.
func handleBench(t *testing.T, effect turnkeeper.Effect, schema string, steps ...inferencetest.Step) (*bench, *tool) {
	text := func(_ context.Context, call tools.Call) (tools.Result, error) {
		return tools.Result{Text: strings.Repeat(document, 10), ShowAs: func(id string) string {
			return "stored as " + id
		}}, nil
	}
	binary := func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{Bytes: []byte{0}}, nil }
	broken := func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{}, errors.New("no") }
	cut := func(context.Context, tools.Call) (tools.Result, error) {
		return tools.Result{Text: "beginning", Incomplete: true}, nil
	}
	large := func(context.Context, tools.Call) (tools.Result, error) {
		return tools.Result{Text: strings.Repeat("é", 4_000_000)}, nil
	}
	small := func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{Text: "small"}, nil }
	taker := newTool("taker", effect)
	taker.spec.Parameters = json.RawMessage(schema)
	b := newBench(t, steps...).with(read("text").does(text), read("binary").does(binary), read("broken").does(broken),
		read("cut").does(cut),
		read("large").does(large), read("small").does(small), taker)
	b.bounds.OutputHandles = true
	return b, taker
}

const anyStrings = `{"type":"object","properties":{"a":{"type":"string"},"list":{"type":"array","items":{"type":"object"}},"short":{"type":"string","maxLength":30}},"additionalProperties":false}`

// TestHandles checks the text that each handle in a string argument is replaced with, and
// that a call with an invalid handle does not run. The calls before it are call_text_1,
// call_binary_2 and so on.
func TestHandles(t *testing.T) {
	whole := strings.Repeat(document, 10)
	for name, c := range map[string]struct{ arguments, want, refused string }{
		"by the call's id":     {`{"a":"output:call_text_1"}`, `{"a":"` + whole + `"}`, ""},
		"by its number":        {`{"a":"output:1"}`, `{"a":"` + whole + `"}`, ""},
		"by its key":           {`{"a":"output:round-1-tool-1"}`, `{"a":"` + whole + `"}`, ""},
		"a part":               {`{"a":"output:1[5:8]"}`, `{"a":"é日😀"}`, ""},
		"an empty part":        {`{"a":"output:1[200:200]"}`, `{"a":""}`, ""},
		"to the end":           {`{"a":"output:1[196:]"}`, `{"a":"tail"}`, ""},
		"a result shown whole": {`{"a":"output:call_small_6"}`, `{"a":"small"}`, ""},
		"deep down": {`{"list":[{"output:1":"output:1[0:4]"},{"x":["output:6"]}]}`,
			`{"list":[{"output:1":"head"},{"x":["small"]}]}`, ""},
		"several":                {`{"a":"output:6","short":"output:1[0:4]"}`, `{"a":"small","short":"head"}`, ""},
		"of what is cut, a part": {`{"a":"output:4[0:9]"}`, `{"a":"beginning"}`, ""},
		"a text with one in it":  {`{"a":"see output:1"}`, `{"a":"see output:1"}`, ""},
		"a literal":              {`{"a":"output::1"}`, `{"a":"output:1"}`, ""},
		"a literal of a literal": {`{"a":"output:::1"}`, `{"a":"output::1"}`, ""},

		"unknown": {`{"a":"output:nothing"}`, "",
			"invalid arguments: output:nothing: no earlier call or result of this turn has that id. Nothing was run."},
		"itself": {`{"a":"output:7"}`, "",
			"invalid arguments: output:7: no earlier call or result of this turn has that id. Nothing was run."},
		"binary": {`{"a":"output:2"}`, "",
			"invalid arguments: output:2: that result is binary, and cannot be passed on as text. Nothing was run."},
		"failed": {`{"a":"output:3"}`, "",
			"invalid arguments: output:3: that call of broken did not succeed, so there is no result to pass on. Nothing was run."},
		"not whole": {`{"a":"output:4"}`, "",
			"invalid arguments: output:4: only the beginning of that result was kept; say output:4[0:9] to pass that on. Nothing was run."},
		"past the end": {`{"a":"output:1[0:201]"}`, "",
			"invalid arguments: output:1[0:201] is past the end: there are 200 characters. Nothing was run."},
		"starts past": {`{"a":"output:1[201:]"}`, "",
			"invalid arguments: output:1[201:] is past the end: there are 200 characters. Nothing was run."},
		"no part": {`{"a":"output:1[9:1]"}`, "",
			"invalid arguments: output:1[9:1]: the part must be [START:END], two whole numbers of characters, the first not above the second. Nothing was run."},
		"too much": {`{"a":"output:5","list":[{"b":"output:5"}]}`, "",
			"invalid arguments: the texts of its handles have more than 10000000 bytes together. Nothing was run."},
		"does not fit": {`{"short":"output:1"}`, "",
			`invalid arguments: with the stored text in its place, the argument "short" does not fit the tool's schema. Nothing was run.`},
	} {
		for _, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectOnce} {
			t.Run(name+"/"+string(effect), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b, taker := handleBench(t, effect, anyStrings, asks("text", "binary", "broken", "cut", "large",
						"small"), asks("taker "+c.arguments), says("Done."))
					b.run(t.Context())
					call := b.store.calls()[6]
					if c.refused != "" {
						if taker.runs.count() != 0 || call.State != turnkeeper.CallDenied || call.Shown != c.refused ||
							call.Starts != 0 {
							t.Errorf("ran %d times, %s, %d starts: %s", taker.runs.count(), call.State,
								call.Starts, call.Shown)
						}
						return
					}
					if taker.runs.count() != 1 || string(taker.runs.calls[0].Arguments) != c.want {
						t.Fatalf("ran %d times, %s: %s", taker.runs.count(), call.State, call.Shown)
					}
					if call.Arguments != c.arguments || call.AsRun() != c.want ||
						call.ArgsHash != tools.Hash("taker", c.want) {
						t.Errorf("journaled as %s, run with %s, hash %s", call.Arguments, call.AsRun(), call.ArgsHash)
					}
				})
			})
		}
	}
}

// TestHandlesOff checks that handles are plain text if the agent does not allow them.
func TestHandlesOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, taker := handleBench(t, turnkeeper.EffectOnce, anyStrings, asks("text"),
			asks(`taker {"a":"output:1","short":"output::x"}`), says("Done."))
		b.bounds.OutputHandles = false
		b.run(t.Context())
		if got := string(taker.runs.calls[0].Arguments); got != `{"a":"output:1","short":"output::x"}` {
			t.Errorf("the tool got %s", got)
		}
		if prompt := b.requests()[0].Messages[0].Text; strings.Contains(prompt, "output:") {
			t.Errorf("the model is told of handles: %s", prompt)
		}
	})
}

// TestHandlesOfNeighbours checks that a call can take the result of an earlier call of
// the same answer, which is then finished and stored first, but not the result of a later
// one.
func TestHandlesOfNeighbours(t *testing.T) {
	for _, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce} {
		synctest.Test(t, func(t *testing.T) {
			b, taker := handleBench(t, effect, anyStrings,
				asks("small", "text", `taker {"a":"output:2[0:4]"}`, `taker {"a":"output:5"}`, "broken"), says("Done."))
			b.run(t.Context())
			if taker.runs.count() != 1 || string(taker.runs.calls[0].Arguments) != `{"a":"head"}` {
				t.Errorf("%s: %d runs, %+v", effect, taker.runs.count(), b.states())
			}
			if call := b.store.calls()[3]; call.State != turnkeeper.CallDenied {
				t.Errorf("%s: the second call is %s: %s", effect, call.State, call.Shown)
			}
		})
	}
}

// TestHandlesOfACallThatIsRunAgain checks that a keyed call that is repeated after a lost
// worker gets the same arguments.
func TestHandlesOfACallThatIsRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, taker := handleBench(t, turnkeeper.EffectKeyed, anyStrings, asks("text"),
			asks(`taker {"a":"output:1[0:4]"}`), says("Done."))
		b.fault = at(agentturn.PointEffectDone, 1, runtime.Goexit)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.dispatch(t.Context())
		}()
		<-done
		b.fault = nil
		outcome := b.run(t.Context())
		if outcome.State != turnkeeper.TurnSucceeded || taker.runs.count() != 2 {
			t.Fatalf("ended %s, %d runs", outcome.State, taker.runs.count())
		}
		for _, call := range taker.runs.calls {
			if string(call.Arguments) != `{"a":"head"}` {
				t.Errorf("it got %s", call.Arguments)
			}
		}
	})
}

// TestThePayloadIsInNoRequest checks that a payload passed from tool to tool is in no
// request.
func TestThePayloadIsInNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, taker := handleBench(t, turnkeeper.EffectOnce, anyStrings,
			asks("text"),
			asks(`patch_output {"id":"call_text_1","edits":[{"find":"needle","replace":"pin","all":true}]}`),
			asks(
				`patch_output {"id":"output:2","edits":[{"find":"head","replace":"output:call_text_1[5:8]","all":true}]}`),
			asks(`taker {"a":"output:3"}`), says("Done."))
		b.with(builtin.NewPatchOutput())
		b.bounds.MaxRounds = 5
		b.run(t.Context())
		want := strings.NewReplacer("needle", "pin", "head", "é日😀").Replace(strings.Repeat(document, 10))
		if taker.runs.count() != 1 || string(taker.runs.calls[0].Arguments) != `{"a":"`+want+`"}` {
			t.Fatalf("%d runs; %s", taker.runs.count(), b.store.calls()[2].Shown)
		}
		for i, request := range b.requests() {
			sent, err := json.Marshal(request)
			if err != nil || strings.Contains(string(sent), document[5:12]) {
				t.Errorf("request %d holds the text, error %v", i+1, err)
			}
		}
	})
}

// TestReadingWhatWasNotShown checks that paging through a result that was stored and not
// shown starts at its first character.
func TestReadingWhatWasNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := handleBench(t, turnkeeper.EffectNone, anyStrings, asks("text"),
			asks(`get_continuation {"tool_call_id":"call_text_1"}`), asks(`get_continuation {"id":"1"}`), says("Done."))
		b.tools = append(b.tools, builtin.NewReaders()...)
		b.bounds.MaxToolResultChars = 10
		b.run(t.Context())
		for i, want := range []string{"head é日😀 n\n\n[truncated — showing 0-10/200 chars.",
			"eedle tail\n\n[truncated — showing 10-20/200 chars."} {
			if got := b.store.calls()[i+1].Shown; !strings.HasPrefix(got, want) {
				t.Errorf("page %d is %q", i+1, got)
			}
		}
	})
}

// lostOutputs have lost the texts of results.
type lostOutputs struct {
	toolrun.Outputs
	lost *bool
}

func (o lostOutputs) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from,
	to int64) (string, error) {
	if *o.lost {
		return "", turnkeeper.ErrNotFound
	}
	return o.Outputs.ReadOutput(ctx, turn, id, from, to)
}

// TestAHandleWhoseTextIsGone checks that a planned call is refused, and that the outcome of one that a lost worker had
// started is unknown.
func TestAHandleWhoseTextIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		started bool
		state   turnkeeper.CallState
		shown   string // prefix of the result
		runs    int
		ends    turnkeeper.TurnState
	}{
		"planned": {false, turnkeeper.CallDenied, "the stored text of a handle is gone. Nothing was run.", 0,
			turnkeeper.TurnSucceeded},
		"started": {true, turnkeeper.CallUnknown, "outcome unknown: ", 1, turnkeeper.TurnDegraded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, taker := handleBench(t, turnkeeper.EffectKeyed, anyStrings, asks("text"),
					asks(`taker {"a":"output:1[5:8]"}`))
				lost := !c.started
				b.config = func(cfg *agentturn.Config) { cfg.Outputs = lostOutputs{b.store.conn, &lost} }
				if c.started {
					b.lose(agentturn.PointEffectDone, 1)
					lost = true
				}
				b.script.Add(says("Done."))
				got := b.run(t.Context())
				call := b.store.calls()[1]
				if got.State != c.ends || call.State != c.state || !strings.HasPrefix(call.Shown, c.shown) ||
					taker.runs.count() != c.runs {
					t.Errorf("%+v; the call ran %d times, and is %s: %q", got, taker.runs.count(),
						call.State, call.Shown)
				}
			})
		})
	}
}
