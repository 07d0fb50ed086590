package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"turnkeeper"
)

// New returns a tool of a function whose arguments are a struct A with JSON
// tags. If spec.Parameters is empty, the schema is derived from A: fields
// without omitempty or omitzero are required, no others are allowed, and a tag
// `jsonschema:"..."` describes a field to the model. A zero effect is
// turnkeeper.EffectOnce.
//
// If A has no schema, because it is not a struct or contains a channel, a function
// or itself, or if run is nil, Register returns an error.
func New[A any](spec Spec, run func(ctx context.Context, call Call, args A) (Result, error)) Tool {
	spec.Effect = cmp.Or(spec.Effect, turnkeeper.EffectOnce)
	t := &function[A]{spec: spec, run: run}
	if len(spec.Parameters) == 0 {
		t.spec.Parameters, t.err = SchemaOf[A]()
	}
	if run == nil {
		t.err = fmt.Errorf("it has no function to run")
	}
	return t
}

// Func returns a tool as New does, of a function that needs only the arguments of
// the call. A string or a Result that the function returns is used unchanged; any
// other value is encoded as JSON.
func Func[A, R any](spec Spec, run func(ctx context.Context, args A) (R, error)) Tool {
	if run == nil {
		return New[A](spec, nil)
	}
	return New(spec, func(ctx context.Context, _ Call, args A) (Result, error) {
		value, err := run(ctx, args)
		if err != nil {
			return Result{}, err
		}
		return resultOf(value)
	})
}

func resultOf(value any) (Result, error) {
	switch v := value.(type) {
	case Result:
		return v, nil
	case string:
		return Result{Text: v}, nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return Result{}, fmt.Errorf("the result cannot be encoded as JSON: %w", err)
	}
	return Result{Text: string(encoded), MediaType: "application/json"}, nil
}

// SchemaOf returns the JSON Schema that New derives from the struct A.
func SchemaOf[A any]() (json.RawMessage, error) {
	if t := reflect.TypeFor[A](); t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("its arguments are of type %s; they must be a struct", t)
	}
	schema, err := jsonschema.For[A](nil)
	if err != nil {
		return nil, fmt.Errorf("its arguments have no schema: %w", err)
	}
	if schema.Properties == nil {
		// Some model servers refuse an object schema without properties.
		schema.Properties = map[string]*jsonschema.Schema{}
	}
	return json.Marshal(schema)
}

type function[A any] struct {
	spec Spec
	run  func(context.Context, Call, A) (Result, error)
	err  error
}

func (t *function[A]) Spec() Spec   { return t.spec }
func (t *function[A]) Check() error { return t.err }

func (t *function[A]) Run(ctx context.Context, call Call) (Result, error) {
	var args A
	if err := json.Unmarshal(call.Arguments, &args); err != nil {
		return Result{}, fmt.Errorf("the arguments do not fit: %w", err)
	}
	return t.run(ctx, call, args)
}
