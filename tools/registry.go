package tools

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/policy"
)

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// A Registry holds tools by name, in the order of registration. The zero value
// is empty and ready for use. Register and Configure are not safe for concurrent
// use. Once they have returned, all other methods are.
//
// Register reads a tool's Spec once.
type Registry struct {
	names   []string
	entries map[string]entry
}

type entry struct {
	tool   Tool
	spec   Spec
	schema *Schema
}

// NewRegistry returns a registry of the tools, or the error of the first tool
// that cannot be registered.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{}
	for _, tool := range tools {
		if err := r.Register(tool); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Register adds a tool. It refuses an invalid or duplicate name, a schema that does
// not compile or is not of an object, an unknown effect or repeat, a negative
// timeout, a max_result_chars out of bounds, a detached tool that has no timeout or
// is transactional or paging, a background that contradicts Transactional or
// Detached, AsksInput with any of these, and an invalid destination. It returns the error of a Checker.
func (r *Registry) Register(tool Tool) error {
	if tool == nil {
		return fmt.Errorf("a nil tool cannot be registered")
	}
	if checker, ok := tool.(Checker); ok {
		if err := checker.Check(); err != nil {
			return fmt.Errorf("tool %q: %w", tool.Spec().Name, err)
		}
	}
	spec := tool.Spec()
	schema, err := checkSpec(&spec)
	if err != nil {
		return err
	}
	if _, taken := r.entries[spec.Name]; taken {
		return fmt.Errorf("tool %q is registered twice; give one of them another name", spec.Name)
	}
	r.add(entry{tool: tool, spec: spec, schema: schema})
	return nil
}

func (r *Registry) add(e entry) {
	if r.entries == nil {
		r.entries = map[string]entry{}
	}
	r.names = append(r.names, e.spec.Name)
	r.entries[e.spec.Name] = e
}

// checkSpec sets the default effect and validates the spec.
func checkSpec(spec *Spec) (*Schema, error) {
	if !nameForm.MatchString(spec.Name) {
		return nil, fmt.Errorf("tool name %q: use 1 to 64 of a-z, A-Z, 0-9, _ and -", spec.Name)
	}
	switch spec.Effect {
	case "":
		spec.Effect = turnkeeper.EffectOnce
	case turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce:
	default:
		return nil, fmt.Errorf("tool %q has effect %q; it must be none, keyed or once", spec.Name, spec.Effect)
	}
	if spec.Timeout < 0 {
		return nil, fmt.Errorf("tool %q has a timeout of %s; it must not be negative", spec.Name, spec.Timeout)
	}
	if err := checkInput(*spec); err != nil {
		return nil, err
	}
	if err := checkDetached(*spec); err != nil {
		return nil, err
	}
	if err := checkSwitches(*spec); err != nil {
		return nil, err
	}
	if err := checkFlow(*spec); err != nil {
		return nil, err
	}
	if b := spec.Background; b != nil && (*b && spec.Transactional || !*b && spec.Detached) {
		return nil,
			fmt.Errorf(
				"tool %q says background %t; a transactional tool never goes to the background, and a detached one always does", spec.Name, *b)
	}
	schema, err := CompileSchema(spec.Parameters)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", spec.Name, err)
	}
	return schema, nil
}

// checkInput validates the spec of a tool that asks for input.
func checkInput(spec Spec) error {
	if spec.AsksInput && (spec.Detached || spec.Transactional || spec.Paging || spec.Background != nil &&
		*spec.Background) {
		return fmt.Errorf(
			"tool %q: a tool that asks for input cannot be detached, transactional or paging, or run in the background",
			spec.Name)
	}
	return nil
}

// checkFlow validates the destinations of a spec.
func checkFlow(spec Spec) error {
	for _, pattern := range spec.Flow.Destinations {
		if fault := policy.CheckDestination(pattern); fault != "" {
			return fmt.Errorf("tool %q has the destination %q: %s", spec.Name, pattern, fault)
		}
	}
	return nil
}

// checkDetached validates the spec of a detached tool.
func checkDetached(spec Spec) error {
	switch {
	case !spec.Detached:
		return nil
	case spec.Transactional || spec.Paging:
		return fmt.Errorf("tool %q is detached; it cannot be transactional or paging as well", spec.Name)
	case spec.Timeout == 0 || spec.Timeout > turnkeeper.MaxDetached:
		return fmt.Errorf(
			"tool %q is detached and has a timeout of %s; it needs one of its own, more than 0 and at most %s",
			spec.Name, spec.Timeout, turnkeeper.MaxDetached)
	}
	return nil
}

// Get returns a tool by its exact name.
func (r *Registry) Get(name string) (Tool, bool) {
	e, ok := r.entries[name]
	return e.tool, ok
}

// Has reports whether a tool of this name is registered.
func (r *Registry) Has(name string) bool {
	_, ok := r.entries[name]
	return ok
}

// Spec returns the spec of a tool as registered, with the default effect set.
func (r *Registry) Spec(name string) (Spec, bool) {
	e, ok := r.entries[name]
	return e.spec, ok
}

// Names returns the names of the tools in the order of registration.
func (r *Registry) Names() []string { return slices.Clone(r.names) }

// Specs returns the specs of the tools in the order of registration, with default
// effects set.
func (r *Registry) Specs() []Spec {
	specs := make([]Spec, 0, len(r.names))
	for _, name := range r.names {
		specs = append(specs, r.entries[name].spec)
	}
	return specs
}

// Subset returns a registry of the named tools, in that order. It refuses a repeated
// name, and an unknown one with an error that lists the registered names.
func (r *Registry) Subset(names []string) (*Registry, error) {
	subset := &Registry{}
	for _, name := range names {
		e, ok := r.entries[name]
		if !ok {
			return nil, r.unknown(name)
		}
		if _, twice := subset.entries[name]; twice {
			return nil, fmt.Errorf("tool %q is listed twice", name)
		}
		subset.add(e)
	}
	return subset, nil
}

func (r *Registry) unknown(name string) error {
	if len(r.names) == 0 {
		return fmt.Errorf("there is no tool %q; no tools are registered", name)
	}
	hint := ""
	if near := r.Nearest(name); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("there is no tool %q%s (there are: %s)", name, hint,
		strings.Join(slices.Sorted(slices.Values(r.names)), ", "))
}
