package tools

import (
	"encoding/json"

	"turnkeeper"
	"turnkeeper/internal/arguments"
)

// Limits of a call's arguments.
const (
	MaxArgumentBytes = arguments.MaxBytes // as the provider sent them, and in canonical form
	MaxArgumentDepth = arguments.MaxDepth // nesting levels of objects and arrays, the outermost included
)

// A Schema is a compiled JSON Schema of a tool's arguments. It is safe for
// concurrent use.
type Schema = arguments.Schema

// CompileSchema compiles the JSON Schema of an object: draft 2020-12 or draft 7,
// with references within the schema only. Patterns that Go's regexp does not
// support, such as a look-ahead, are not checked. A schema must come from the
// operator or a server the operator trusts: it can make checks slow. Calls with
// the same text may return the same Schema. It is safe for concurrent use.
func CompileSchema(parameters json.RawMessage) (*Schema, error) {
	return arguments.CompileSchema(parameters)
}

// Arguments are the validated arguments of a call.
type Arguments struct {
	// Canonical is the JSON that is hashed, stored and passed to the tool: object
	// keys in byte order, no whitespace between tokens, no needless escapes, and
	// numbers in canonical form (see Schema.Check).
	Canonical string
	// Coerced reports whether a string was decoded into the array or object that
	// the schema requires.
	Coerced bool
}

// CheckArguments validates arguments as they are written: see Schema.Check. fault is
// empty if they are valid, else text for the model.
func CheckArguments(schema *Schema, raw string) (args Arguments, fault string) {
	return check(schema, raw, arguments.AsWritten)
}

// CheckReadArguments is like CheckArguments, for a call that only reads: where the
// schema requires an array or object, a string that holds one as JSON is decoded.
func CheckReadArguments(schema *Schema, raw string) (args Arguments, fault string) {
	return check(schema, raw, arguments.Decoding)
}

func check(schema *Schema, raw string, how arguments.Read) (args Arguments, fault string) {
	value, coerced, fault := schema.Check(raw, how)
	if fault != "" {
		return Arguments{}, fault
	}
	return Arguments{Canonical: value.Canonical(), Coerced: coerced}, ""
}

// Check validates the arguments of a call of the named tool: see CheckArguments, and
// CheckReadArguments for a tool of effect none. For an unknown tool it returns a fault.
func (r *Registry) Check(name, raw string) (args Arguments, fault string) {
	e, ok := r.entries[name]
	switch {
	case !ok:
		return Arguments{}, "tool not found: " + name
	case e.spec.Effect == turnkeeper.EffectNone:
		return CheckReadArguments(e.schema, raw)
	}
	return CheckArguments(e.schema, raw)
}

// CheckAsWritten checks arguments that a call will have as they are written. It refuses those too that Check accepts
// only because it decodes a string or leaves out a null.
func (r *Registry) CheckAsWritten(name, raw string) (fault string) {
	e, ok := r.entries[name]
	if !ok {
		return "tool not found: " + name
	}
	args, fault := CheckArguments(e.schema, raw)
	if fault != "" {
		return fault
	}
	if value, _ := arguments.Parse(raw); value.Canonical() != args.Canonical { // blank text is not valid JSON
		return e.schema.Fault("a null is not valid by the schema; leave the argument out")
	}
	return ""
}

// Resolve replaces each string in a call's canonical arguments, at any depth, with
// the result of value. It leaves keys and the arguments in the spec's OutputIDs
// unchanged. It checks the result against the tool's schema again, but does not
// limit its size. fault is for the model and quotes no value. An error of value is
// returned as err.
func (r *Registry) Resolve(name, canonical string,
	value func(string) (string, error)) (resolved, fault string, err error) {
	e, ok := r.entries[name]
	if !ok {
		return "", "tool not found: " + name, nil
	}
	args, err := arguments.Parse(canonical)
	if err != nil {
		return "", "", err
	}
	if args, err = args.MapTexts(value, e.spec.OutputIDs...); err != nil {
		return "", "", err
	}
	if bad := e.schema.Misfits(args); bad != "" {
		return "", "invalid arguments: with the stored text in its place, " + bad +
			" does not fit the tool's schema. Nothing was run.", nil
	}
	return args.Canonical(), "", nil
}

// Hash returns the hex SHA-256 of the name, a NUL and the canonical arguments.
func Hash(name, canonical string) string { return arguments.Hash(name, canonical) }

// MalformedPlaceholder returns the JSON object that is stored and sent back to
// providers in place of arguments that are not a JSON object. It quotes their
// first 500 characters, with invalid UTF-8 replaced and NUL removed.
func MalformedPlaceholder(raw string) string { return arguments.MalformedPlaceholder(raw) }
