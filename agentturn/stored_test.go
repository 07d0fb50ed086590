package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// pagedBench returns a bench with a tool that returns text and counts its runs in runs.
func pagedBench(t *testing.T, text string, runs *int, steps ...inferencetest.Step) *bench {
	big := tools.Func(tools.Spec{Name: "big", Effect: turnkeeper.EffectNone},
		func(context.Context, struct{}) (string, error) {
			*runs++
			return text, nil
		})
	b := newBench(t, steps...).with(big)
	b.tools = append(b.tools, builtin.NewReaders()...)
	b.bounds.RoundCeiling = 20
	return b
}

func asksFor(name, id, arguments string) inferencetest.Step {
	return inferencetest.Answer(inference.Response{Calls: []inference.Call{{ID: id, Name: name, Arguments: arguments}}})
}

// lastResult returns the newest tool result of a request.
func lastResult(r inference.Request) string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == inference.RoleTool {
			return r.Messages[i].Text
		}
	}
	return ""
}

var (
	firstMarker = regexp.MustCompile(
		`(?s)^(.*)\n\n\[truncated — showing (\d+)/(\d+) chars\. Call get_continuation with tool_call_id="([^"]+)" to read more\]$`)
	laterMarker = regexp.MustCompile(
		`(?s)^(.*)\n\n\[truncated — showing (\d+)-(\d+)/(\d+) chars\. (\d+) chars remaining\. Call get_continuation with tool_call_id="([^"]+)" offset=(\d+) to read more\]$`)
)

// TestReadingOn checks that a model that follows the markers reads the whole text from
// one run of the tool.
func TestReadingOn(t *testing.T) {
	for _, limit := range []int{4000, 6000} {
		for name, text := range map[string]string{
			"24,591 characters": strings.Repeat("0123456789", 2460)[:24591],
			"emoji":             strings.Repeat("👩‍👩‍👧‍👦e\u0301日ש", 1500),
			"one over the cap":  strings.Repeat("x", limit+1),
			"at the cap":        strings.Repeat("x", limit),
		} {
			t.Run(fmt.Sprint(name, "/", limit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var read strings.Builder
					var runs int
					var b *bench
					follow := inferencetest.Func(func(ctx context.Context, req inference.Request,
						onDelta func(inference.Delta)) (inference.Response, error) {
						shown := lastResult(req)
						if m := firstMarker.FindStringSubmatch(shown); m != nil {
							read.WriteString(m[1])
							return inference.Response{Calls: []inference.Call{{ID: "p", Name: "get_continuation",
								Arguments: fmt.Sprintf(`{"tool_call_id":%q}`, m[4])}}}, nil
						}
						if m := laterMarker.FindStringSubmatch(shown); m != nil {
							read.WriteString(m[1])
							return inference.Response{Calls: []inference.Call{{ID: "p", Name: "get_continuation",
								Arguments: fmt.Sprintf(`{"id":%q,"offset":%s}`, m[6], m[7])}}}, nil
						}
						read.WriteString(shown)
						return inference.Response{Text: "Read.", FinishReason: "stop"}, nil
					})
					steps := []inferencetest.Step{asksFor("big", "call_abc123", `{}`)}
					for range 12 {
						steps = append(steps, follow)
					}
					b = pagedBench(t, text, &runs, steps...)
					b.bounds.MaxToolResultChars = limit
					outcome := b.run(t.Context())
					if outcome.State != turnkeeper.TurnSucceeded || read.String() != text || runs != 1 {
						t.Errorf("ended %s; read %d bytes of %d; the tool ran %d times", outcome.State, read.Len(),
							len(text), runs)
					}
					if b.store.turn().ChargedRounds > 3 {
						t.Errorf("%d rounds were charged", b.store.turn().ChargedRounds)
					}
				})
			})
		}
	}
}

// TestWhatCanBeAskedOfAnOutput checks that paging without an offset continues after the
// last page, that a call can be named in several ways, and that an invalid request is
// answered with an error as JSON.
func TestWhatCanBeAskedOfAnOutput(t *testing.T) {
	text := "head " + strings.Repeat("é", 95) + " needle " + strings.Repeat("z", 100)
	for name, c := range map[string]struct{ tool, arguments, want string }{
		"by ordinal": {"get_continuation", `{"tool_call_id":"1"}`,
			"[truncated — showing 50-100/208 chars. 108 chars remaining. Call get_continuation with tool_call_id=\"c1\" offset=100 to read more]"},
		"by a number":      {"get_continuation", `{"id":1}`, "showing 50-100/208"},
		"by the key":       {"get_continuation", `{"id":"round-1-tool-1"}`, "showing 50-100/208"},
		"the last page":    {"get_continuation", `{"tool_call_id":"c1","offset":200}`, "zzzzzzzz"},
		"offset as string": {"get_continuation", `{"tool_call_id":"c1","offset":"100"}`, "showing 100-150/208"},
		"negative": {"get_continuation", `{"tool_call_id":"c1","offset":-1}`,
			`{"error":"offset must not be negative, and is -1"}`},
		"fraction": {"get_continuation", `{"tool_call_id":"c1","offset":1.5}`,
			`{"error":"offset must be a whole number of characters, 0 or more"}`},
		"huge": {"get_continuation", `{"tool_call_id":"c1","offset":99999999999999999999}`,
			`{"error":"offset must be a whole number of characters, 0 or more"}`},
		"words": {"get_continuation", `{"tool_call_id":"c1","offset":"all"}`,
			`{"error":"offset must be a whole number of characters, 0 or more"}`},
		"past the end": {"get_continuation", `{"tool_call_id":"c1","offset":208}`,
			`{"error":"offset 208 is past the end: there are 208 characters"}`},
		"unknown": {"get_continuation", `{"tool_call_id":"other"}`, `{"error":"Unknown tool ID: other"}`},
		"no id": {"get_continuation", `{}`,
			`{"error":"tool_call_id is missing: give the id from the marker at the end of the result"}`},
		"itself": {"get_continuation", `{"tool_call_id":"c2"}`, `{"error":"Unknown tool ID: c2"}`},
		"raw":    {"get_tool_output", `{"id":"c1","mode":"raw"}`, "head é"},
		"slice": {"get_tool_output", `{"id":"c1","mode":"slice","slice":{"start":5,"length":3}}`,
			"[chars 5-8 of 208]\nééé"},
		"a whole slice": {"get_tool_output", `{"id":"c1","mode":"slice","slice":{"start":150,"length":50}}`,
			"[chars 150-200 of 208]\n" + strings.Repeat("z", 50)},
		"anchor": {"get_tool_output", `{"id":"c1","mode":"slice","slice":{"anchor":"needle","window":4}}`,
			"[chars 99-109 of 208]\né needle z"},
		"no such anchor": {"get_tool_output", `{"id":"c1","mode":"slice","slice":{"anchor":"pin"}}`,
			`{"error":"Anchor not found in content"}`},
		"unknown output":   {"get_tool_output", `{"id":"x","mode":"raw"}`, `{"error":"Unknown tool ID: x"}`},
		"output by number": {"get_tool_output", `{"id":1,"mode":"raw"}`, "head é"},
		"a long number":    {"get_tool_output", `{"id":1234567,"mode":"raw"}`, `{"error":"Unknown tool ID: 1234567"}`},
		"a longer number": {"get_tool_output", `{"id":12345678901234567890,"mode":"raw"}`,
			`{"error":"Unknown tool ID: 12345678901234567890"}`},
		"spaces":           {"get_tool_output", `{"id":" c1","mode":"raw"}`, `{"error":"Unknown tool ID:  c1"}`},
		"spaces, paged":    {"get_continuation", `{"tool_call_id":"c1 "}`, `{"error":"Unknown tool ID: c1 "}`},
		"no plain ordinal": {"get_continuation", `{"tool_call_id":"+1"}`, `{"error":"Unknown tool ID: +1"}`},
		"null for nothing": {"get_tool_output",
			`{"id":"c1","mode":"slice","query":null,"slice":{"start":5,"length":3,"anchor":null,"window":null}}`,
			"[chars 5-8 of 208]\nééé"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				b := pagedBench(t, text, &runs, asksFor("big", "c1", `{}`), asksFor(c.tool, "c2", c.arguments),
					inferencetest.Answer(inference.Response{Text: "Done.", FinishReason: "stop"}))
				b.bounds.MaxToolResultChars = 50
				b.run(t.Context())
				requests := b.requests()
				if got := lastResult(requests[len(requests)-1]); len(requests) != 3 || !strings.Contains(got, c.want) ||
					strings.HasPrefix(c.want, "{") && got != c.want {
					t.Errorf("%d requests; the result is %q", len(requests), got)
				}
				if runs != 1 {
					t.Errorf("the tool ran %d times", runs)
				}
			})
		})
	}
}

// TestALargeResultIsStoredWhileItComes checks that a large result is stored whole while
// it is received, and that one that breaks off fails its call.
func TestALargeResultIsStoredWhileItComes(t *testing.T) {
	text := strings.Repeat("words and more words. ", 1<<16)
	for name, c := range map[string]struct {
		body  io.Reader
		state turnkeeper.CallState
		shown string // prefix of the result
	}{
		"whole": {strings.NewReader(text), turnkeeper.CallSucceeded,
			text[:6000] + "\n\n[... truncated: showing first 6000 of 1441792 chars]"},
		"breaks off": {io.MultiReader(strings.NewReader(text), iotest.ErrReader(errors.New("gone"))),
			turnkeeper.CallFailed, "tool error: the result broke off after 1441792 bytes: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("big"), says("Done."))
				b.with(read("big").does(func(context.Context, tools.Call) (tools.Result, error) {
					return tools.Result{Body: c.body}, nil
				}))
				b.run(t.Context())
				call := b.store.calls()[0]
				if call.State != c.state || !strings.HasPrefix(call.Shown, c.shown) {
					t.Errorf("the call is %s, and shown as %.7000s", call.State, call.Shown)
				}
				if call.OutputID == "" {
					return
				}
				if out := b.store.outputs()[0]; !out.Drafted {
					t.Errorf("it was written whole: %+v", out)
				}
				if kept, err := b.store.conn.ReadOutput(t.Context(), turnID, call.OutputID, 0,
					1<<30); kept != text || err != nil {
					t.Errorf("%d characters are kept, %v", len(kept), err)
				}
			})
		})
	}
}

// TestIDsThatDifferByASpace checks that ids that differ by a space name two calls, each
// read by its own id.
func TestIDsThatDifferByASpace(t *testing.T) {
	for id, want := range map[string]string{"c": "first", "c ": "second", " c": `{"error":"Unknown tool ID:  c"}`} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, inferencetest.Answer(inference.Response{Calls: []inference.Call{
				{ID: "c", Name: "look", Arguments: `{"n":1}`}, {ID: "c ", Name: "look", Arguments: `{"n":2}`},
			}}), asksFor("get_continuation", "r", fmt.Sprintf(`{"tool_call_id":%q,"offset":0}`, id)), says("Done."))
			b.with(read("look").does(func(_ context.Context, call tools.Call) (tools.Result, error) {
				return tools.Result{Text: []string{"first", "second"}[call.Key.Ordinal-1]}, nil
			}))
			b.tools = append(b.tools, builtin.NewReaders()...)
			b.run(t.Context())
			if got := lastResult(b.requests()[2]); got != want {
				t.Errorf("%q gives %q", id, got)
			}
		})
	}
}

// TestReadersThatAreSwitchedOff checks that the tools that read outputs are unknown, and
// not named in an error, if paging is off, and wait_for_tool_output if handles are.
func TestReadersThatAreSwitchedOff(t *testing.T) {
	const known, page, get, wait = "\nNothing was run. Available tools: look", ", get_continuation",
		", get_tool_output", ", wait_for_tool_output"
	const unknownID, noneRuns = `{"error":"Unknown tool ID: x"}`, "No async tools running."
	missing := func(tool, offered string) string { return "tool not found: " + tool + known + offered + "." }
	off := []string{missing("get_continuation", ""), missing("get_tool_output", ""), missing("wait_for_tool_output",
		""), missing("get_contents", "")}
	for name, test := range map[string]struct {
		set  func(*bench)
		want []string // answers to the three readers and an unknown tool
	}{
		"all on": {func(*bench) {}, []string{unknownID, unknownID, noneRuns, missing("get_contents",
			page+get+wait)}},
		"no paging": {func(b *bench) { b.bounds.Paging = false }, off},
		"no handles": {func(b *bench) {
			b.bounds.Async = false
		}, []string{unknownID, unknownID, missing("wait_for_tool_output", page+get),
			missing("get_contents", page+get)}},
		"neither": {func(b *bench) { b.bounds.Paging, b.bounds.Async = false, false }, off},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks(`get_continuation {"tool_call_id":"x"}`,
					`get_tool_output {"id":"x","mode":"raw"}`, "wait_for_tool_output {}", "get_contents {}"),
					says("Done.")).with(read("look"))
				b.tools = append(b.tools, builtin.NewReaders()...)
				b.def.Tools = append(b.def.Tools, "get_continuation") // listing a reader changes nothing
				test.set(b)
				b.run(t.Context())
				if got := results(b.requests()[1]); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", test.want) {
					t.Errorf("answered\n%q, want\n%q", got, test.want)
				}
			})
		})
	}
}

// TestOfferedReadersAreNamed checks that the error for an unknown tool names the readers
// that the request offered.
func TestOfferedReadersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		b := pagedBench(t, strings.Repeat("x", 7000), &runs, asks("big {}"), asks("get_contents {}"), says("Done."))
		b.run(t.Context())
		if got, want := lastResult(b.requests()[2]),
			"tool not found: get_contents\nNothing was run. Available tools: big, get_continuation, get_tool_output, wait_for_tool_output."; !strings.HasPrefix(got, want) {
			t.Errorf("answered %q", got)
		}
	})
}

// TestReadersAreOfferedInEveryRequest checks that all requests of an agent with tools offer the
// tools that read outputs, that none is offered with paging off, and none to an agent without tools.
func TestReadersAreOfferedInEveryRequest(t *testing.T) {
	names := func(r inference.Request) (all []string) {
		for _, d := range r.Tools {
			all = append(all, d.Name)
		}
		return all
	}
	const marker = `[truncated — showing 6000/7000 chars. Call get_continuation with tool_call_id="c1" to read more]`
	for name, c := range map[string]struct {
		set           func(*bench)
		tools, marker string
	}{
		"all on":     {func(*bench) {}, "[big get_continuation get_tool_output wait_for_tool_output]", marker},
		"no handles": {func(b *bench) { b.bounds.Async = false }, "[big get_continuation get_tool_output]", marker},
		"no paging": {func(b *bench) {
			b.bounds.Paging = false
		}, "[big]", "[... truncated: showing first 6000 of 7000 chars]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			b := pagedBench(t, strings.Repeat("x", 7000), &runs, asksFor("big", "c1", `{}`),
				inferencetest.Answer(inference.Response{Text: "Done.", FinishReason: "stop"}))
			c.set(b)
			b.run(t.Context())
			for i, request := range b.requests() {
				if got := fmt.Sprint(names(request)); got != c.tools {
					t.Errorf("%s: request %d offers %s", name, i+1, got)
				}
			}
			if got := lastResult(b.requests()[1]); got != strings.Repeat("x", 6000)+"\n\n"+c.marker {
				t.Errorf("%s: it shows %q", name, got[6000:])
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, says("Done."))
		b.tools = append(b.tools, builtin.NewReaders()...)
		b.run(t.Context())
		if got := b.requests()[0]; got.Tools != nil {
			t.Errorf("an agent without tools is offered %v", names(got))
		}
	})
}
