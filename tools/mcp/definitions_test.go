package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

func byName(all []mcpdef.Tool) []mcpdef.Tool {
	slices.SortFunc(all, func(a, b mcpdef.Tool) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func described(hash string) mcpdef.Definition {
	return mcpdef.Definition{Description: "does " + hash, Schema: emptySchema, Hash: hash}
}

// TestWhatIsStoredOfAList checks each field of the tools that are stored after a list: a new tool is pinned, the pin of
// a known one stays, and one that is not listed is gone, until it comes again.
func TestWhatIsStoredOfAList(t *testing.T) {
	t.Parallel()
	old, now := time.Unix(1000, 0), time.Unix(2000, 0)
	kept := []mcpdef.Tool{
		{Server: "h", Name: "back", Pinned: described("p1"), PinnedAt: old, Seen: described("s1"),
			SeenAt: old, Gone: true},
		{Server: "h", Name: "changed", Pinned: described("p2"), PinnedAt: old, Seen: described("p2"), SeenAt: old},
		{Server: "h", Name: "leaves", Pinned: described("p3"), PinnedAt: old, Seen: described("s3"), SeenAt: old},
	}
	seen := []mcpdef.Tool{
		{Server: "h", Name: "new", Seen: described("s4")}, {Server: "h", Name: "changed", Seen: described("s2")},
		{Server: "h", Name: "back", Seen: described("p1")},
	}
	want := []mcpdef.Tool{
		{Server: "h", Name: "back", Pinned: described("p1"), PinnedAt: old, Seen: described("p1"), SeenAt: now},
		{Server: "h", Name: "changed", Pinned: described("p2"), PinnedAt: old, Seen: described("s2"), SeenAt: now},
		{Server: "h", Name: "leaves", Pinned: described("p3"), PinnedAt: old, Seen: described("s3"),
			SeenAt: old, Gone: true},
		{Server: "h", Name: "new", Pinned: described("s4"), PinnedAt: now, Seen: described("s4"), SeenAt: now},
	}
	if diff := cmp.Diff(want, byName(Merge(kept, seen, now))); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if len(kept) != 3 || kept[2].Gone {
		t.Errorf("what was stored before was changed: %+v", kept)
	}
}

// A closet is a Store that can be away.
type closet struct {
	tools []mcpdef.Tool
	away  error
	reads int
}

func (c *closet) MCPTools(_ context.Context, server string) ([]mcpdef.Tool, error) {
	c.reads++
	if server != "h" {
		return nil, errors.New("of another server: " + server)
	}
	return slices.Clone(c.tools), c.away
}

func (c *closet) SeeMCPTools(_ context.Context, server string, seen []mcpdef.Tool) ([]mcpdef.Tool, error) {
	if c.away != nil || server != "h" {
		return nil, fmt.Errorf("%w (server %s)", c.away, server)
	}
	c.tools = byName(Merge(c.tools, seen, time.Now()))
	return slices.Clone(c.tools), nil
}

func listed(hashes map[string]string) (seen []mcpdef.Tool) {
	for _, name := range sortedKeys(hashes) {
		seen = append(seen, mcpdef.Tool{Server: "h", Name: name, Seen: described(hashes[name])})
	}
	return seen
}

// TestACatalogOverItsLife follows the tools of one server: which calls are refused and why, what operators read in the
// log, and that each change is logged once.
func TestACatalogOverItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		store := &closet{}
		c := newCatalog(Server{Name: "h", RefuseChange: true}, store, zap.New(core), time.Second)
		refuses := func(when, tool, want string) {
			t.Helper()
			if got := c.refusal(t.Context(), tool); !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("%s, %s: %q, want %q", when, tool, got, want)
			}
		}
		logged := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, entry := range logs.TakeAll() {
				fields, _ := json.Marshal(entry.ContextMap())
				got = append(got, fmt.Sprintf("%s: %s %s", entry.Level, entry.Message, fields))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, logged (-want +got):\n%s", when, diff)
			}
		}
		const changed,
			gone = `the MCP server "h" has changed its tool "a" since an operator accepted it, and it is refused until it is accepted again (turnctl mcp pin)`, `the MCP server "h" has no tool "b"`
		refuses("before any list", "a", "")
		refuses("before any list", "unknown", "")
		c.see(t.Context(), listed(map[string]string{"a": "1", "b": "1"}))
		refuses("listed", "a", "")
		refuses("listed", "unknown", `the MCP server "h" has no tool "unknown"`)
		logged("listed")

		for range 2 {
			c.see(t.Context(), listed(map[string]string{"a": "2"}))
		}
		refuses("changed", "a", changed)
		refuses("changed", "b", gone)
		const notPinned = `warn: the definition of an MCP server's tool is not the pinned one {"pinned":%q,"refused":true,"seen":%q,"tool":"a"}`
		logged("changed", fmt.Sprintf(notPinned, "1", "2"))
		if e, _, _ := c.get("a"); c.inUse(e.Tool).Hash != "1" {
			t.Error("the changed definition is used")
		}

		store.tools[0].Pinned = store.tools[0].Seen // by an operator
		refuses("accepted a moment ago", "a", changed)
		time.Sleep(time.Second)
		refuses("accepted a second ago", "a", changed)
		time.Sleep(time.Nanosecond)
		refuses("accepted", "a", "")
		logged("accepted")

		c.see(t.Context(), listed(map[string]string{"a": "3", "b": "1"}))
		refuses("changed again", "a", changed)
		refuses("back", "b", "")
		logged("changed again", fmt.Sprintf(notPinned, "2", "3"))

		store.away = errors.New("no database")
		time.Sleep(time.Second + 1)
		refuses("without the store", "a", changed)
		refuses("without the store, at once again", "a", changed)
		c.see(t.Context(), listed(map[string]string{"a": "1"}))
		refuses("as it was, without the store", "b", gone)
		logged("without the store",
			`warn: the pinned definitions could not be read again {"error":"no database"}`,
			`warn: the pinned definitions could not be read again {"error":"no database"}`,
			`warn: what an MCP server says of its tools could not be kept {"error":"no database (server h)"}`,
			fmt.Sprintf(notPinned, "2", "1"))
	})
}

// TestADefinitionThatCannotBeUsed checks why a tool is left out, that this is logged once for each definition, and that
// it can be used once its definition is right.
func TestADefinitionThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	c := newCatalog(Server{Name: "h"}, nil, zap.New(core), time.Hour)
	if err := c.read(t.Context()); err != nil {
		t.Error(err)
	}
	see := func(schema, hash string) {
		c.see(t.Context(), []mcpdef.Tool{{Server: "h", Name: "a", Seen: mcpdef.Definition{Schema: schema, Hash: hash}}})
	}
	h := &host{server: c.server, catalog: c}
	for _, one := range []struct{ schema, want string }{
		{`{"type":"array"}`, "object"}, {`{"type":"object","properties":{"x":{"enum":[9007199254740993]}}}`,
			"9007199254740993"}, {`{"type":`, "JSON"},
	} {
		for range 2 {
			see(one.schema, one.schema)
		}
		told := logs.FilterMessage("an MCP server's tool is left out").All()
		_ = logs.TakeAll()
		if len(told) != 1 || told[0].ContextMap()["tool"] != "a" ||
			!strings.Contains(fmt.Sprint(told[0].ContextMap()["why"]), one.want) ||
			Fault(mcpdef.Definition{Schema: one.schema}) != told[0].ContextMap()["why"] {
			t.Errorf("%s: logged %+v", one.schema, told)
		}
		got := c.refusal(t.Context(), "a")
		if !strings.HasPrefix(got, `what the MCP server "h" says of its tool "a" cannot be used: `) ||
			!strings.Contains(got, one.want) || h.newTool("a") != nil {
			t.Errorf("%s: refused with %q", one.schema, got)
		}
	}
	see(emptySchema, "right")
	if got := c.refusal(t.Context(), "a"); got != "" || h.newTool("a") == nil ||
		logs.FilterField(zap.String("tool", "a")).Len() != 1 {
		t.Errorf("with a right definition: %q, logged %v", got, logs.All())
	}
}

// TestTheSpecOfATool checks each field of a tool's spec: what the settings of the tool say, else those of its server,
// and what the server's definition says.
func TestTheSpecOfATool(t *testing.T) {
	t.Parallel()
	flow := func(label policy.Label, sink policy.Sink, argument string) policy.Flow {
		return policy.Flow{Labels: []policy.Label{label}, Sinks: []policy.Sink{sink}, Destination: []string{argument},
			Destinations: []string{argument + "@"}}
	}
	s := Server{
		Name: "h", Effect: turnkeeper.EffectKeyed, Timeout: time.Minute, Background: new(true), Approve: "always",
		Flow: flow(policy.Untrusted, "send", "to"), AskForInput: true,
		Tools: map[string]ToolSettings{"own": {
			Effect: turnkeeper.EffectNone, Timeout: time.Second, Background: new(false), Freshness: time.Hour,
			Repeat:  tools.RepeatAllow,
			Approve: "never", Flow: flow(policy.Private, "publish", "where"), MaxResultChars: 77,
			Early: true, Cache: time.Hour, CacheScope: tools.CacheAgent, // not with forms for a person
		}},
	}
	const schema = `{"properties":{"x":{}},"type":"object"}`
	c := newCatalog(s, nil, zap.NewNop(), time.Hour)
	var seen []mcpdef.Tool
	for _, name := range []string{"own", "plain"} {
		seen = append(seen, mcpdef.Tool{Server: "h", Name: name, Seen: mcpdef.Definition{Description: "Does " + name,
			Schema: schema, Hash: name}})
	}
	seen = append(seen, mcpdef.Tool{Server: "h", Name: "silent", Seen: mcpdef.Definition{Schema: schema, Hash: "s"}})
	c.see(t.Context(), seen)
	plain := tools.Spec{
		Name: "h__plain", Description: "Does plain", Parameters: json.RawMessage(schema),
		Effect: turnkeeper.EffectKeyed, Timeout: time.Minute,
		Background: new(true), AsksInput: true, Approve: "always", Flow: s.Flow, DefinitionLabels: s.Flow.Labels,
	}
	silent, unknown := plain, plain
	silent.Name, silent.Description = "h__silent", "The tool silent of the MCP server h."
	unknown.Name, unknown.Parameters = "h__unknown", json.RawMessage(emptySchema)
	unknown.Description =
		"The tool unknown of the MCP server h. What it does is not known, for the server has not told yet."
	want := map[string]tools.Spec{
		"plain": plain, "silent": silent, "unknown": unknown,
		"own": {
			Name: "h__own", Description: "Does own", Parameters: json.RawMessage(schema), Effect: turnkeeper.EffectNone,
			Timeout:    time.Second,
			Background: new(false), Freshness: time.Hour, Repeat: tools.RepeatAllow, MaxResultChars: 77,
			AsksInput: true, Approve: "never",
			Flow: s.Tools["own"].Flow, DefinitionLabels: s.Flow.Labels,
		},
	}
	for name, spec := range want {
		if diff := cmp.Diff(spec, (&host{server: s, catalog: c}).newTool(name).Spec()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestTheSwitchesOfReads checks that a tool has the switches of reads only if it turns out to be one.
func TestTheSwitchesOfReads(t *testing.T) {
	t.Parallel()
	s := Server{Name: "h", TrustHints: true, Tools: map[string]ToolSettings{
		"reads": {Early: true, Cache: time.Hour, CacheScope: tools.CacheAgent}, "plain": {},
		"writes": {Early: true, Cache: time.Hour}, "unknown": {Early: true, Cache: time.Hour},
	}}
	c := newCatalog(s, nil, zap.NewNop(), time.Hour)
	var seen []mcpdef.Tool
	for _, name := range []string{"reads", "plain", "writes"} {
		seen = append(seen, mcpdef.Tool{Server: "h", Name: name, Seen: mcpdef.Definition{Description: name,
			Schema: emptySchema, Hash: name, ReadOnly: name != "writes"}})
	}
	c.see(t.Context(), seen)
	for name := range s.Tools {
		tool := (&host{server: s, catalog: c}).newTool(name)
		spec, reads := tool.Spec(), name == "reads"
		if spec.Early != reads || (spec.Cache == time.Hour) != reads || (spec.CacheScope == tools.CacheAgent) != reads {
			t.Errorf("%s has %+v", name, spec)
		}
		if _, err := tools.NewRegistry(tool); err != nil {
			t.Error(err)
		}
	}
}

// TestWhoseEffectCounts checks the order of what says which effect a tool has, and how long its calls may take.
func TestWhoseEffectCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own, server          turnkeeper.Effect
		trust, reads, repeat bool
		want                 turnkeeper.Effect
	}{
		{"", "", false, true, true, turnkeeper.EffectOnce}, {"", "", true, false, false, turnkeeper.EffectOnce},
		{"", "", true, true, true, turnkeeper.EffectNone}, {"", "", true, true, false, turnkeeper.EffectNone},
		{"", "", true, false, true, turnkeeper.EffectKeyed},
		{"", turnkeeper.EffectOnce, true, true, true, turnkeeper.EffectOnce}, {turnkeeper.EffectKeyed,
			turnkeeper.EffectOnce, true, true, true, turnkeeper.EffectKeyed},
	} {
		s := Server{Effect: c.server, TrustHints: c.trust, Tools: map[string]ToolSettings{"t": {Effect: c.own}}}
		if got := s.EffectOf("t", mcpdef.Definition{ReadOnly: c.reads, Idempotent: c.repeat}); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := (Server{}).connectTimeout(); got != 30*time.Second {
		t.Errorf("a session may take %s to open", got)
	}
	if got := (Server{ConnectTimeout: time.Millisecond}).connectTimeout(); got != time.Millisecond {
		t.Errorf("a session may take %s to open, instead of what is set", got)
	}
}
