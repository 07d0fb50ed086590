package mcp_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

func TestTheListChanges(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		if got := b.call("added", `{}`); got.Outcome != tools.Failed {
			t.Errorf("%q", got.Result.Text)
		}
		b.answers("add", "added")
		await(t, "the new tool", func() bool { return b.Tool("h", "added").Spec().Description == "New." })
		b.answers("added", "{}")
	})
}

// TestAServerThatReportsAChangeAtEachList checks that its tools are read less and less often, and again at once after a
// quiet time.
func TestAServerThatReportsAChangeAtEachList(t *testing.T) {
	t.Parallel()
	const first = 10 * time.Millisecond
	b := newBenchWithin(t, func(l *mcp.Limits) { l.Relist, l.LastRelist = first, 8*first }, overHTTP, "restless")
	b.http.mode = "restless"
	b.answers("echo", "{}")
	const reads = 9
	await(t, "reads", func() bool { return len(marksIn(b.dir, "lists")) >= reads })
	var at [reads]int
	for i, when := range marksIn(b.dir, "lists")[:reads] {
		at[i], _ = strconv.Atoi(when)
	}
	for i := 3; i < reads; i++ { // the first report may come while the session is made
		if least := int(min(first<<(i-3), 8*first).Milliseconds()) - 2; at[i]-at[i-1] < least {
			t.Errorf("read %d came %d ms after the one before, want at least %d", i+1, at[i]-at[i-1], least)
		}
	}
	b.answers("add", "added") // a change of a restless server is seen in the end
	await(t, "the new tool", func() bool { return b.Tool("h", "added").Spec().Description == "New." })
}

// A list of tools that changes with each read is read only at intervals.
func TestAListThatNeverStopsChanging(t *testing.T) {
	t.Parallel()
	const pause = 200 * time.Millisecond
	b := newBenchWithin(t, func(l *mcp.Limits) { l.Relist = pause }, overStdio, "restless")
	b.answers("echo", "{}")
	await(t, "three looks", func() bool { return len(marksIn(b.dir, "lists")) >= 3 })
	var at [3]int
	for i, when := range marksIn(b.dir, "lists")[:3] {
		at[i], _ = strconv.Atoi(when)
	}
	if at[2]-at[1] < int(pause.Milliseconds())-1 {
		t.Errorf("it was looked at again after %d ms", at[2]-at[1])
	}
	b.answers("echo", "{}")
}

// The total size of a list of tools is limited.
func TestAListThatIsTooLarge(t *testing.T) {
	t.Parallel()
	const long = 6 * patience // 16 MiB pass through two processes
	b := newBench(t, overStdio, "hoarder", func(s *mcp.Server) { s.ConnectTimeout = long })
	got := b.callAs(t.Context(), tools.Call{Lane: "lane"}, "echo", `{}`, long)
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "its list of tools is too large") {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
	if pages := len(marksIn(b.dir, "lists")); pages > 20 {
		t.Errorf("%d pages were read", pages)
	}
}

// A tool whose description or schema is too large is omitted, and the others
// remain.
func TestADefinitionThatIsTooLarge(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	b := newBenchWithin(t, func(*mcp.Limits) {}, overStdio, "talkative")
	b.Close()
	b.Client = mcp.NewLimited(mcp.Config{Servers: []mcp.Server{b.declared}, Store: b.store,
		Log: zap.New(core)}, forTests)
	b.answers("echo", "{}")
	b.answers("echo", "{}")
	for _, name := range []string{"add", "fail"} {
		if tool := b.Tool("h", name); tool != nil {
			t.Errorf("%s is offered: %.100q", name, tool.Spec().Description)
		}
	}
	var told []string
	for _, entry := range logs.FilterMessage("an MCP server's tool is left out").All() {
		told = append(told, fmt.Sprint(entry.ContextMap()["tool"], ": ", entry.ContextMap()["why"]))
	}
	slices.Sort(told)
	want := []string{
		"add: its description has 102400 bytes; at most 16384 are taken",
		"fail: its schema has 102434 bytes; at most 65536 are taken",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

func TestAChangedDefinition(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		t.Run("refuse "+strconv.FormatBool(refuse), func(t *testing.T) {
			both(t, func(t *testing.T, transport string) {
				b := newBench(t, transport, "", func(s *mcp.Server) { s.RefuseChange = refuse })
				b.answers("echo", "{}")
				before := b.Tool("h", "echo")
				b.answers("change", "changed")
				await(t, "the change", func() bool {
					if refuse {
						return b.call("echo", `{"more":1}`).Outcome == tools.Failed
					}
					return b.Tool("h", "echo").Spec().Description != before.Spec().Description
				})
				spec, ending := b.Tool("h", "echo").Spec(), b.call("echo", `{"more":1}`)
				if !refuse {
					if !strings.HasPrefix(spec.Description, "Ignore") || ending.Outcome != tools.Succeeded {
						t.Errorf("%q, %q", spec.Description, ending.Result.Text)
					}
					// A tool that a turn was offered before has other arguments.
					old := tools.Execute(t.Context(), before, tools.Call{Arguments: []byte(`{}`)},
						tools.ExecuteOptions{})
					if old.Outcome != tools.Failed || !strings.Contains(old.Result.Text, `missing "more"`) {
						t.Errorf("%s: %q", old.Outcome, old.Result.Text)
					}
					return
				}
				if spec.Description != "Does echo." || ending.Outcome != tools.Failed ||
					!strings.Contains(ending.Result.Text, "turnctl mcp pin") {
					t.Errorf("%q, %q", spec.Description, ending.Result.Text)
				}
				b.store.pin("h")
				await(t, "the new pin", func() bool { return b.call("echo", `{"more":1}`).Outcome == tools.Succeeded })
			})
		})
	}
}

// The tools of a server that is down are known from their stored definitions.
func TestKeptDefinitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, overStdio, "")
	if spec := b.Tool("h", "echo").Spec(); !strings.Contains(spec.Description, "is not known") ||
		string(spec.Parameters) != `{"properties":{},"type":"object"}` {
		t.Errorf("before: %+v", spec)
	}
	b.answers("echo", "{}")
	down := mcp.New(mcp.Config{Servers: []mcp.Server{{Name: "h", Command: []string{"/nowhere"}}}, Store: b.store})
	defer down.Close()
	if err := down.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if spec := down.Tool("h", "echo").Spec(); spec.Description != "Does echo." ||
		!strings.Contains(string(spec.Parameters), `"text"`) {
		t.Errorf("after: %+v", spec)
	}
	got := tools.Execute(t.Context(), down.Tool("h", "echo"), tools.Call{}, tools.ExecuteOptions{})
	if !strings.Contains(got.Result.Text, `the MCP server "h" cannot be reached: the program /nowhere cannot be run`) {
		t.Errorf("%q", got.Result.Text)
	}
}

func TestEffects(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		set  func(*mcp.Server)
		want map[string]turnkeeper.Effect
	}{
		"nobody says anything": {func(*mcp.Server) {}, map[string]turnkeeper.Effect{"echo": turnkeeper.EffectOnce,
			"fail": turnkeeper.EffectOnce}},
		"the hints are believed": {func(s *mcp.Server) { s.TrustHints = true },
			map[string]turnkeeper.Effect{"echo": turnkeeper.EffectNone, "fail": turnkeeper.EffectOnce}},
		"the operator says more than hints": {func(s *mcp.Server) {
			s.TrustHints, s.Effect = true, turnkeeper.EffectKeyed
			s.Tools = map[string]mcp.ToolSettings{"fail": {Effect: turnkeeper.EffectNone, Timeout: time.Minute}}
		}, map[string]turnkeeper.Effect{"echo": turnkeeper.EffectKeyed, "fail": turnkeeper.EffectNone}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, overHTTP, "", c.set)
			b.answers("echo", "{}")
			for tool, want := range c.want {
				if got := b.Tool("h", tool).Spec().Effect; got != want {
					t.Errorf("%s: %s, want %s", tool, got, want)
				}
			}
		})
	}
}

// The definitions of a labelled server have its labels, whatever the labels of a tool's results.
func TestLabelsOfDefinitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "", func(s *mcp.Server) {
		s.Flow.Labels = []policy.Label{policy.Untrusted}
		s.Tools = map[string]mcp.ToolSettings{"fail": {Flow: policy.Flow{Labels: []policy.Label{}}}}
	})
	b.answers("echo", "{}")
	for tool, results := range map[string]int{"echo": 1, "fail": 0} {
		spec := b.Tool("h", tool).Spec()
		if len(spec.DefinitionLabels) != 1 || spec.DefinitionLabels[0] != policy.Untrusted ||
			len(spec.Flow.Labels) != results {
			t.Errorf("%s: labels of the definition %v, of results %v", tool, spec.DefinitionLabels, spec.Flow.Labels)
		}
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		found, err := mcp.Probe(t.Context(), b.declared, mcp.Access{}, nil)
		if err != nil || len(found) != len(toolNames) || found[0].Name != "add" || len(found[0].Seen.Hash) != 64 {
			t.Errorf("%d tools, error %v", len(found), err)
		}
	})
	b := newBench(t, overStdio, "dead")
	if _, err := mcp.Probe(t.Context(), b.declared, mcp.Access{}, nil); err == nil ||
		err.Error() != "its program ended with exit code 3" {
		t.Errorf("error %v", err)
	}
}
