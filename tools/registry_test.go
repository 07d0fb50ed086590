package tools_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/tools"
)

// A fake is a tool with a configurable spec and behaviour.
type fake struct {
	spec tools.Spec
	run  func(context.Context, tools.Call) (tools.Result, error)
}

func (f fake) Spec() tools.Spec { return f.spec }
func (f fake) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	return f.run(ctx, call)
}

func named(name string) fake {
	return fake{spec: tools.Spec{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)}}
}

func TestRegisterRefuses(t *testing.T) {
	spec := func(change func(*tools.Spec)) tools.Tool {
		f := named("tool")
		change(&f.spec)
		return f
	}
	parameters := func(schema string) tools.Tool {
		return spec(func(s *tools.Spec) { s.Parameters = json.RawMessage(schema) })
	}
	tests := []struct {
		name string
		tool tools.Tool
		want string
	}{
		{"nil", nil, "nil tool"},
		{"no name", named(""), `tool name ""`},
		{"blank in name", named("a b"), "use 1 to 64"},
		{"long name", named(strings.Repeat("a", 65)), "use 1 to 64"},
		{"newline at the end", named("a\n"), "use 1 to 64"},
		{"unknown effect", spec(func(s *tools.Spec) { s.Effect = "twice" }), "must be none, keyed or once"},
		{"invalid destination", spec(func(s *tools.Spec) { s.Flow.Destinations = []string{"https://x/../y"} }),
			`has the destination "https://x/../y": its path must have no`},
		{"negative timeout", spec(func(s *tools.Spec) { s.Timeout = -time.Second }), "must not be negative"},
		{"detached without a timeout", spec(func(s *tools.Spec) { s.Detached = true }), "needs one of its own"},
		{"detached for two days", spec(func(s *tools.Spec) { s.Detached, s.Timeout = true, 48*time.Hour }),
			"at most 24h"},
		{"detached and transactional", spec(func(s *tools.Spec) {
			s.Detached, s.Transactional, s.Timeout = true, true, time.Hour
		}), "cannot be transactional"},
		{"detached and never in the background", spec(func(s *tools.Spec) {
			s.Detached, s.Timeout, s.Background = true, time.Hour, new(false)
		}), "a detached one always does"},
		{"transactional and in the background", spec(func(s *tools.Spec) {
			s.Transactional, s.Background = true, new(true)
		}), "a transactional tool never goes"},
		{"detached and paging", spec(func(s *tools.Spec) { s.Detached, s.Paging, s.Timeout = true, true, time.Hour }),
			"cannot be transactional or paging"},
		{"no schema", parameters(``), "schema of the parameters is missing"},
		{"broken schema", parameters(`{`), "not valid JSON"},
		{"asks for input in a transaction", spec(func(s *tools.Spec) { s.AsksInput, s.Transactional = true, true }),
			"a tool that asks for input cannot"},
		{"asks for input in the background", spec(func(s *tools.Spec) { s.AsksInput, s.Background = true, new(true) }),
			"a tool that asks for input cannot"},
		{"asks for input and is detached", spec(func(s *tools.Spec) {
			s.AsksInput, s.Detached, s.Timeout = true, true, time.Hour
		}), "a tool that asks for input cannot"},
		{"asks for input and is paging", spec(func(s *tools.Spec) {
			s.AsksInput, s.Paging = true, true
		}), "a tool that asks for input cannot"},
		{"no schema object", parameters(`[1]`), `must be of "type": "object"`},
		{"schema of an array", parameters(`{"type":"array"}`), `must be of "type": "object"`},
		{"schema of object or null", parameters(`{"type":["object","null"]}`), `must be of "type": "object"`},
		{"keyword of a wrong type", parameters(`{"type":"object","required":"x"}`), "value of the wrong type"},
		{"bad pattern", parameters(`{"type":"object","properties":{"a":{"pattern":"("}}}`), "does not compile"},
		{"old draft", parameters(`{"type":"object","$schema":"http://json-schema.org/draft-04/schema#"}`),
			"use draft 2020-12 or draft 7"},
		{"remote reference", parameters(`{"type":"object","properties":{"a":{"$ref":"http://h/x"}}}`),
			"only references within the schema"},
		{"dangling reference", parameters(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}}}`),
			"only references within the schema"},
		{"endless reference", parameters(`{"type":"object","allOf":[{"$ref":"#"}]}`), "refers to itself without end"},
		{"endless pair",
			parameters(
				`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/y"},"y":{"anyOf":[{"$ref":"#/$defs/x"}]}}}`), "refers to itself without end"},
		{"arguments that are no struct", tools.New(tools.Spec{Name: "tool"}, func(context.Context, tools.Call,
			int) (tools.Result, error) {
			return tools.Result{}, nil
		}), "must be a struct"},
		{"arguments without a schema", tools.New(tools.Spec{Name: "tool"}, func(context.Context, tools.Call,
			struct{ C chan int }) (tools.Result, error) {
			return tools.Result{}, nil
		}), "have no schema"},
		{"no function", tools.New[struct{}](tools.Spec{Name: "tool"}, nil), "no function"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := tools.NewRegistry(tt.tool)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewRegistry() = %v, %v; want an error with %q", r, err, tt.want)
			}
		})
	}
}

func TestRecursiveSchemaIsFine(t *testing.T) {
	tree := named("tree")
	tree.spec.Parameters = json.RawMessage(
		`{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}}}`)
	r := registry(t, tree)
	if args, fault := r.Check("tree", `{"children":[{"children":[]}]}`); fault != "" {
		t.Errorf("Check() = %v, %q", args, fault)
	}
	if _, fault := r.Check("tree", `{"children":[{"children":[1]}]}`); fault == "" {
		t.Error("a number was taken for a tree")
	}
}

func TestDuplicateName(t *testing.T) {
	_, err := tools.NewRegistry(named("a"), named("a"))
	if err == nil || !strings.Contains(err.Error(), "registered twice") {
		t.Errorf("err = %v", err)
	}
}

func registry(t *testing.T, all ...tools.Tool) *tools.Registry {
	t.Helper()
	r, err := tools.NewRegistry(all...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSubset(t *testing.T) {
	r := registry(t, named("read_file"), named("clock"), named("http_get"))
	if diff := cmp.Diff([]string{"read_file", "clock", "http_get"}, r.Names()); diff != "" {
		t.Errorf("Names (-want +got):\n%s", diff)
	}
	sub, err := r.Subset([]string{"http_get", "clock"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"http_get", "clock"}, sub.Names()); diff != "" {
		t.Errorf("Names of the subset (-want +got):\n%s", diff)
	}
	if _, ok := sub.Get("read_file"); ok {
		t.Error("the subset has a tool that was not named")
	}
	if _, fault := sub.Check("read_file", "{}"); fault != "tool not found: read_file" {
		t.Errorf("fault = %q", fault)
	}
	if spec, ok := sub.Spec("clock"); !ok || spec.Effect != turnkeeper.EffectOnce {
		t.Errorf("Spec = %+v, %v; want the zero effect filled in", spec, ok)
	}

	for _, tt := range []struct {
		name, want string
		names      []string
	}{
		{"unknown", `there is no tool "readfile"; did you mean "read_file"? (there are: clock, http_get, read_file)`,
			[]string{"clock", "readfile"}},
		{"twice", `tool "clock" is listed twice`, []string{"clock", "clock"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.Subset(tt.names)
			if err == nil || err.Error() != tt.want {
				t.Errorf("err = %v, want %s", err, tt.want)
			}
		})
	}

	empty, err := r.Subset(nil)
	if err != nil || len(empty.Names()) != 0 {
		t.Errorf("Subset(nil) = %v, %v", empty, err)
	}
}

func TestNearest(t *testing.T) {
	r := registry(t, named("read_file"), named("list_files"), named("clock"), named("ls"))
	for wrong, want := range map[string]string{
		"ReadFile": "read_file", "read-files": "read_file", "listfiles": "list_files", "clok": "clock",
		"zz": "", "": "", "launch_rocket": "", strings.Repeat("read_file", 1000): "",
	} {
		if got := r.Nearest(wrong); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", wrong, got, want)
		}
	}
}
