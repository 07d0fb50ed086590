package tools

import (
	"slices"
	"strings"
)

// Resolve replaces each string in a call's canonical arguments, at any depth, with
// the result of value. It leaves keys and the arguments in the spec's OutputIDs
// unchanged. It checks the result against the tool's schema again, but does not
// limit its size. fault is for the model and quotes no value. An error of value is
// returned as err.
func (r *Registry) Resolve(name, canonical string, value func(string) (string, error)) (resolved, fault string, err error) {
	e, ok := r.entries[name]
	if !ok {
		return "", "tool not found: " + name, nil
	}
	parsed, err := parseJSON(canonical, MaxArgumentDepth)
	if err != nil {
		return "", "", err
	}
	object, ok := parsed.(map[string]any)
	if !ok {
		return canonical, "", nil
	}
	for _, key := range sortedKeys(object) {
		if slices.Contains(e.spec.OutputIDs, key) {
			continue
		}
		if object[key], err = mapStrings(object[key], value); err != nil {
			return "", "", err
		}
	}
	if bad := e.schema.misfits(object); bad != "" {
		return "", "invalid arguments: with the stored text in its place, " + bad + " does not fit the tool's schema. Nothing was run.", nil
	}
	return string(appendCanonical(nil, object)), "", nil
}

func mapStrings(value any, to func(string) (string, error)) (_ any, err error) {
	switch v := value.(type) {
	case string:
		return to(v)
	case []any:
		for i := range v {
			if v[i], err = mapStrings(v[i], to); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if v[key], err = mapStrings(v[key], to); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// misfits names the arguments that the schema refuses; empty: the schema accepts all.
func (s *Schema) misfits(args map[string]any) string {
	plain := plainValue(args).(map[string]any)
	if s.whole.Validate(plain) == nil {
		return ""
	}
	var names []string
	for _, name := range sortedKeys(plain) {
		if s.partial != nil && s.partial.Validate(map[string]any{name: plain[name]}) != nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "an argument"
	}
	return strings.Join([]string{"the argument", quoteAll(names)}, " ")
}
