package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/tools"
)

type searchArgs struct {
	Query string   `json:"query" jsonschema:"what to look for"`
	Limit int      `json:"limit,omitempty"`
	Tags  []string `json:"tags,omitzero"`
}

func TestSchemaOfStruct(t *testing.T) {
	tool := tools.New(tools.Spec{Name: "search"}, func(context.Context, tools.Call, searchArgs) (tools.Result, error) {
		return tools.Result{}, nil
	})
	want := `{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},` +
		`"limit":{"type":"integer"},"tags":{"type":["null","array"],"items":{"type":"string"}}},` +
		`"required":["query"],"additionalProperties":false}`
	if diff := cmp.Diff(want, string(tool.Spec().Parameters)); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
	if got := tool.Spec().Effect; got != turnkeeper.EffectOnce {
		t.Errorf("effect = %q, want once", got)
	}
	none, err := tools.SchemaOf[struct{}]()
	if want := `{"type":"object","properties":{},"additionalProperties":false}`; err != nil || string(none) != want {
		t.Errorf("schema of no arguments = %s, %v", none, err)
	}
}

func TestOwnSchemaIsKept(t *testing.T) {
	own := json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","maxLength":3}}}`)
	tool := tools.New(tools.Spec{Name: "search", Parameters: own}, func(_ context.Context, call tools.Call,
		args searchArgs) (tools.Result, error) {
		return tools.Result{Text: call.IdempotencyKey + args.Query}, nil
	})
	if got := string(tool.Spec().Parameters); got != string(own) {
		t.Errorf("schema = %s", got)
	}
	res, err := tool.Run(t.Context(), tools.Call{IdempotencyKey: "k-", Arguments: json.RawMessage(`{"query":"abc"}`)})
	if err != nil || res.Text != "k-abc" {
		t.Errorf("Run() = %+v, %v", res, err)
	}
}

func TestFuncResults(t *testing.T) {
	type out struct {
		Sum int `json:"sum"`
	}
	spec := tools.Spec{Name: "f"}
	failed := errors.New("no such luck")
	tests := []struct {
		name string
		tool tools.Tool
		want tools.Result
		err  error
	}{
		{"string", tools.Func(spec, func(context.Context, struct{}) (string, error) { return "plain", nil }),
			tools.Result{Text: "plain"}, nil},
		{"struct", tools.Func(spec, func(context.Context, struct{}) (out, error) {
			return out{3}, nil
		}), tools.Result{Text: `{"sum":3}`, MediaType: "application/json"}, nil},
		{"result", tools.Func(spec, func(context.Context, struct{}) (tools.Result, error) {
			return tools.Result{Bytes: []byte{1}}, nil
		}), tools.Result{Bytes: []byte{1}}, nil},
		{"error", tools.Func(spec, func(context.Context, struct{}) (string, error) { return "lost", failed }),
			tools.Result{}, failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.tool.Run(t.Context(), tools.Call{Arguments: json.RawMessage(`{}`)})
			if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, tt.err) {
				t.Errorf("err = %v, result (-want +got):\n%s", err, diff)
			}
		})
	}
	unencodable := tools.Func(spec, func(context.Context, struct{}) (any, error) { return func() {}, nil })
	if _, err := unencodable.Run(t.Context(), tools.Call{Arguments: json.RawMessage(`{}`)}); err == nil {
		t.Error("a function was encoded as JSON")
	}
}

// TestMayGoOn checks which calls may go to the background.
func TestMayGoOn(t *testing.T) {
	const none = turnkeeper.EffectNone
	for name, c := range map[string]struct {
		spec tools.Spec
		want bool
	}{
		"a read":                       {tools.Spec{Effect: none}, true},
		"a read that may not":          {tools.Spec{Effect: none, Background: new(false)}, false},
		"an effect":                    {tools.Spec{Effect: turnkeeper.EffectOnce}, false},
		"an effect that may":           {tools.Spec{Effect: turnkeeper.EffectKeyed, Background: new(true)}, true},
		"a reader of outputs":          {tools.Spec{Effect: none, Paging: true}, false},
		"a reader, whatever it says":   {tools.Spec{Effect: none, Paging: true, Background: new(true)}, false},
		"a tool that may ask a person": {tools.Spec{AsksInput: true, Background: new(true)}, false},
	} {
		if got := c.spec.MayGoOn(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
