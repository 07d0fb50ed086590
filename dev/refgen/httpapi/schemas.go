package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper/internal/views"
)

// schemas builds JSON schemas of Go types. A named struct or an enum is a component.
//
// A field's tag doc is its description. Its tag schema adds what the type does not say, as
// name=value,name=value with | between the values of a list. The names are keywords of JSON Schema, and
//
//	ref=Name   use this component
//	orEmpty    an enum may be empty too; it is inlined
//	nullable   a list or map may be null
//	inline     inline a struct
//
// A field is required unless it may be left out (omitempty, omitzero).
type schemas struct {
	byName map[string]object
	types  map[string]reflect.Type // of the structs in byName
}

// of returns the schema of a value's type.
func (s *schemas) of(value any) object { return s.tagged(value, "") }

// tagged is of for a value with a tag schema.
func (s *schemas) tagged(value any, tag string) object {
	return s.field(reflect.TypeOf(value), parseTag(tag))
}

func (s *schemas) components() (o object) {
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		o = o.add(name, s.byName[name])
	}
	return o
}

func (s *schemas) add(name string, o object) {
	if s.byName == nil {
		s.byName, s.types = map[string]object{}, map[string]reflect.Type{}
	}
	s.byName[name] = o
}

// strict forbids additional properties in a body's schema.
func (s *schemas) strict(body any) {
	name := nameOf(reflect.TypeOf(body))
	for _, m := range s.byName[name] {
		if m.name == "additionalProperties" {
			return
		}
	}
	s.byName[name] = s.byName[name].add("additionalProperties", false)
}

type option struct{ name, value string }

func parseTag(tag string) (all []option) {
	for part := range strings.SplitSeq(tag, ",") {
		if name, value, _ := strings.Cut(part, "="); name != "" {
			all = append(all, option{name, value})
		}
	}
	return all
}

func has(options []option, name string) (string, bool) {
	for _, o := range options {
		if o.name == name {
			return o.value, true
		}
	}
	return "", false
}

// field returns the schema of a type with options.
func (s *schemas) field(t reflect.Type, options []option) object {
	nullable := t.Kind() == reflect.Pointer
	if nullable {
		t = t.Elem()
	}
	if _, is := has(options, "nullable"); is {
		nullable = true
	}
	var o object
	if name, is := has(options, "ref"); is {
		s.add(name, enumOf(name))
		o = ref("schemas", name)
	} else if _, is := has(options, "orEmpty"); is {
		o = object{{"type", "string"}, {"enum", append([]string{""}, enums[nameOf(t)].values...)}}
	} else if _, is := has(options, "inline"); is {
		o = s.structure(t)
	} else if _, is := has(options, "type"); !is {
		o = s.plain(t)
	}
	for _, option := range options {
		switch option.name {
		case "ref", "orEmpty", "inline", "nullable":
		default:
			o = set(o, option)
		}
	}
	if !nullable {
		return o
	}
	if o[0].name == "$ref" {
		return object{{"anyOf", []object{o, {{"type", "null"}}}}}
	}
	if kind, is := o[0].value.(string); is && kind != "null" {
		o[0].value = []string{kind, "null"}
	}
	return o
}

// set sets a keyword of a schema.
func set(o object, option option) object {
	var value any = option.value
	switch option.name {
	case "type":
		if kinds := strings.Split(option.value, "|"); len(kinds) > 1 {
			value = kinds
		}
		return object{{"type", value}}
	case "enum":
		value = strings.Split(option.value, "|")
	case "format", "pattern":
	default:
		var decoded any
		if err := json.Unmarshal([]byte(option.value), &decoded); err == nil {
			value = decoded
		}
	}
	for i := range o {
		if o[i].name == option.name {
			o[i].value = value
			return o
		}
	}
	return o.add(option.name, value)
}

// plain returns the schema of a type without options, which is not a pointer.
func (s *schemas) plain(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.String:
		if name := nameOf(t); enums[name].values != nil {
			s.add(name, enumOf(name))
			return ref("schemas", name)
		}
		return object{{"type", "string"}}
	case reflect.Int, reflect.Int32:
		return object{{"type", "integer"}, {"format", "int32"}}
	case reflect.Int64:
		return object{{"type", "integer"}, {"format", "int64"}}
	case reflect.Float64:
		return object{{"type", "number"}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Slice:
		if t.Elem() == reflect.TypeFor[struct{}]() {
			return object{{"type", "array"}}
		}
		return object{{"type", "array"}, {"items", s.field(t.Elem(), nil)}}
	case reflect.Map:
		o := object{{"type", "object"}}
		if t.Elem().Kind() == reflect.String {
			o = o.add("additionalProperties", s.plain(t.Elem()))
		}
		return o
	case reflect.Interface:
		return object{}
	case reflect.Struct:
		return s.component(t)
	default:
		panic(fmt.Sprintf("no schema for the type %s: add it here", t))
	}
}

// component returns a reference to the component of a struct, which it adds, or the schema of a struct without a name.
func (s *schemas) component(t reflect.Type) object {
	if t.Name() == "" {
		return s.structure(t)
	}
	name := nameOf(t)
	if other := s.types[name]; other != nil && other != t {
		panic(fmt.Sprintf("%s and %s are both named %s: add one to the table names", t, other, name))
	}
	if _, known := s.byName[name]; !known {
		s.add(name, nil) // the type may be recursive
		s.types[name] = t
		if t == reflect.TypeFor[views.Event]() {
			s.add(name, s.union())
		} else {
			s.add(name, s.described(name, s.structure(t)))
		}
	}
	return ref("schemas", name)
}

// described adds fieldSchemas and docs to a component.
func (s *schemas) described(name string, o object) object {
	properties := o[len(o)-1].value.(object)
	for i, p := range properties {
		if more, is := fieldSchemas[name+"."+p.name]; is {
			for _, m := range more {
				properties[i].value = replaced(properties[i].value.(object), m)
			}
		}
	}
	if doc := docs[name]; doc != "" {
		o = o.add("description", doc)
	}
	return o
}

func replaced(o object, by member) object {
	for i := range o {
		if o[i].name == by.name {
			o[i].value = by.value
			return o
		}
	}
	return o.add(by.name, by.value)
}

func (s *schemas) structure(t reflect.Type) object {
	var required []string
	var properties object
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for f := range t.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				add(f.Type)
				continue
			case name == "" || name == "-":
				continue
			}
			kind, optional := f.Type, strings.Contains(options, "omit")
			if optional && kind.Kind() == reflect.Pointer { // left out instead of null
				kind = kind.Elem()
			}
			schema, doc := s.field(kind, parseTag(f.Tag.Get("schema"))), f.Tag.Get("doc")
			if value, rest, has := withoutDefault(schema); has {
				schema, optional, doc = rest, true, strings.TrimPrefix(fmt.Sprintf("%s; default: %v", doc, value), "; ")
			}
			if slices.ContainsFunc(schema, func(m member) bool { return m.name == "enum" }) {
				schema = schema.add("title", titleOf(nameOf(t), name))
			}
			if doc != "" {
				schema = schema.add("description", doc)
			}
			properties = properties.add(name, schema)
			if !optional {
				required = append(required, name)
			}
		}
	}
	add(t)
	o := object{{"type", "object"}}
	if len(required) > 0 {
		o = o.add("required", required)
	}
	return o.add("properties", properties)
}

// withoutDefault removes the default from the schema of a field, for its description: generators make a
// field with a default one that must be given.
func withoutDefault(o object) (value any, rest object, has bool) {
	for _, m := range o {
		if m.name == "default" {
			value, has = m.value, true
		} else {
			rest = append(rest, m)
		}
	}
	return value, rest, has
}

// titleOf returns the title of an enumeration that is no component, which generators name it by.
func titleOf(component, field string) string {
	for word := range strings.SplitSeq(field, "_") {
		component += strings.ToUpper(word[:1]) + word[1:]
	}
	return component
}

// nameOf returns the name of the component of a struct or an enumeration.
func nameOf(t reflect.Type) string {
	if strings.HasPrefix(t.Name(), "list[") {
		items, _ := t.FieldByName("Items")
		return nameOf(items.Type.Elem()) + "List"
	}
	name := path.Base(t.PkgPath()) + "." + t.Name()
	if other, is := names[name]; is {
		return other
	}
	return strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
}

func enumOf(name string) object {
	e, is := enums[name]
	if !is {
		panic("there is no enumeration " + strconv.Quote(name))
	}
	return object{{"type", "string"}, {"enum", e.values}, {"description", e.doc}}
}
