package main

import (
	"reflect"
	"slices"
	"strings"

	"turnkeeper/internal/views"
)

// union returns the schema of an event: one component for each type of event, which its field type tells apart.
func (s *schemas) union() object {
	var all []object
	var mapping object
	for _, row := range views.EventRows {
		name := camel(string(row.Type)) + "Event"
		s.add(name, s.event(row))
		all = append(all, ref("schemas", name))
		mapping = mapping.add(string(row.Type), ref("schemas", name)[0].value)
	}
	return object{
		{"oneOf", all}, {"discriminator", object{{"propertyName", "type"}, {"mapping", mapping}}},
		{"description", docs["Event"]},
	}
}

// event returns the schema of a type of event.
func (s *schemas) event(row views.EventRow) object {
	o := s.structure(reflect.TypeFor[views.Event]())
	properties := o[len(o)-1].value.(object)
	for i, p := range properties {
		switch p.name {
		case "type":
			properties[i].value = object{{"type", "string"}, {"const", string(row.Type)}}
		case "data":
			properties[i].value = s.data(row)
		}
	}
	if !row.Send {
		return o.add("description", row.Meaning+" Only with the scope read.")
	}
	return o.add("description", row.Meaning)
}

// data returns the schema of the data of a type of event. Fields that those who may only send do not get are optional.
func (s *schemas) data(row views.EventRow) object {
	if row.Data == nil {
		return object{{"type", "null"}}
	}
	t := reflect.TypeOf(row.Data)
	name := nameOf(t)
	if _, known := s.byName[name]; known { // two types of events have it
		return ref("schemas", name)
	}
	component := s.of(row.Data)
	if !row.Send {
		return component
	}
	sent, o := views.SentFields(row.Data), s.byName[name]
	var required []string
	for f := range t.Fields() {
		field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if sent[field] && !strings.Contains(options, "omit") {
			required = append(required, field)
		}
	}
	o = slices.DeleteFunc(slices.Clone(o), func(m member) bool { return m.name == "required" })
	if len(required) > 0 {
		o = slices.Insert(o, 1, member{"required", required})
	}
	for i, m := range o {
		if m.name == "properties" {
			o[i].value = restricted(m.value.(object), sent)
		}
	}
	s.add(name, o)
	return component
}

// restricted says of the fields that are not sent to all that they need the scope read.
func restricted(properties object, sent map[string]bool) object {
	for i, p := range properties {
		if !sent[p.name] {
			properties[i].value = noted(p.value.(object))
		}
	}
	return properties
}

// noted adds to the description of a schema that it needs the scope read.
func noted(o object) object {
	const note = "only with the scope read"
	for i, m := range o {
		if m.name == "description" {
			o[i].value = m.value.(string) + "; " + note
			return o
		}
	}
	return o.add("description", note)
}

// camel returns a name in snake case in camel case.
func camel(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
