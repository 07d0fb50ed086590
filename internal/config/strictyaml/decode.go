package strictyaml

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Decoder fills structs from mappings and records each fault with its line. Tags of a field define its
// keys and what they accept:
//
//	yaml:"key"      key, or several keys of which at most one may be given
//	needs:"text"    the key is required; the text, if any, follows "is missing"
//	in:"1 to 20"    range of a number or duration; "0, or 1 to 20" accepts 0 too
//	of:"a, b, c"    allowed words of a text; a bool is true for the last word
//	check:"name"    Checks[name] checks a text, or each text of a list
//	once:"yes"      a list must not repeat a text
//	names:"name"    Checks[name] checks the keys of a map
//	as:"name"       Readers[name] reads the value, or each value of a map
//	type:"text"     type in the Reference
//
// Fields of an embedded struct without a key count as fields of the outer struct. A value with a fault
// may be set partially.
type Decoder struct {
	*Problems
	// Checks return the rest of a fault after the key, such as " must have a path"; empty: no fault.
	Checks map[string]func(text string) string
	// Readers read a value into the field that to points to.
	Readers map[string]func(at Place, v *Node, to any)
}

// An OwnKey is a key of a mapping for which its struct has no field.
type OwnKey struct {
	Key string
	Tag reflect.StructTag // see Decoder
	To  any               // points to the variable that takes the value
}

// A Place is the position of a value.
type Place struct {
	Where string // full key: "providers.acme.headers.X-Title"
	Key   string // last part of the key: "X-Title"
	Line  int    // of the key
}

// JSON is any value as JSON.
type JSON = json.RawMessage

// Decode fills the struct that to points to. where is the key of the mapping with a final dot; empty for
// the document. own are further keys of the mapping.
func (d *Decoder) Decode(where string, v *Node, to any, own ...OwnKey) {
	fields := map[string]reflect.Value{}
	tags := map[string]reflect.StructTag{}
	var known []string
	var groups [][]string
	eachField(reflect.ValueOf(to).Elem(), func(keys []string, tag reflect.StructTag, field reflect.Value) {
		groups, known = append(groups, keys), append(known, keys...)
		for _, key := range keys {
			fields[key], tags[key] = field, tag
		}
	})
	for _, o := range own {
		groups, known = append(groups, []string{o.Key}), append(known, o.Key)
		fields[o.Key], tags[o.Key] = reflect.ValueOf(o.To).Elem(), o.Tag
	}
	d.Fields(where, v, known, func(field Field) {
		d.set(Place{where + field.Key, field.Key, field.Line}, field.Value, fields[field.Key], tags[field.Key])
	})
	if v.Kind != Map {
		return
	}
	for _, keys := range groups {
		var given []string
		for _, f := range v.Fields {
			if slices.Contains(keys, f.Key) && !slices.Contains(given, f.Key) {
				given = append(given, f.Key)
			}
		}
		hint, needed := tags[keys[0]].Lookup("needs")
		switch {
		case len(given) > 1:
			d.Add(v.Line, "%s has %s: set only one of them", subject(where), strings.Join(given, " and "))
		case len(given) == 0 && needed:
			d.Add(v.Line, "%s%s is missing%s", where, keys[0], hint)
		}
	}
}

// eachField calls each for every field of a struct that has keys.
func eachField(of reflect.Value, each func(keys []string, tag reflect.StructTag, field reflect.Value)) {
	for i := range of.NumField() {
		field := of.Type().Field(i)
		if keys := field.Tag.Get("yaml"); keys != "" {
			each(strings.Split(keys, ","), field.Tag, of.Field(i))
		} else if field.IsExported() && field.Type.Kind() == reflect.Struct {
			eachField(of.Field(i), each)
		}
	}
}

// Entries calls each for the entries of a mapping whose keys are chosen by the user. check names the
// check of the keys; empty: any key is allowed.
func (d *Decoder) Entries(where string, v *Node, check string, each func(at Place, v *Node)) {
	var names []string
	for _, field := range v.Fields {
		names = append(names, field.Key)
	}
	d.Fields(where+".", v, names, func(field Field) {
		if check != "" {
			if wrong := d.Checks[check](field.Key); wrong != "" {
				d.Add(field.Line, "%s%s", where, wrong)
				return
			}
		}
		each(Place{where + "." + field.Key, field.Key, field.Line}, field.Value)
	})
}

// Value reads one value into the variable that to points to, following the tag.
func (d *Decoder) Value(at Place, v *Node, to any, tag reflect.StructTag) {
	d.set(at, v, reflect.ValueOf(to).Elem(), tag)
}

func (d *Decoder) set(at Place, v *Node, field reflect.Value, tag reflect.StructTag) {
	if field.Kind() == reflect.Map && field.Type() != reflect.TypeFor[JSON]() {
		field.Set(reflect.MakeMap(field.Type()))
		d.Entries(at.Where, v, tag.Get("names"), func(at Place, v *Node) {
			entry := reflect.New(field.Type().Elem()).Elem()
			d.set(at, v, entry, tag)
			field.SetMapIndex(reflect.ValueOf(at.Key), entry)
		})
		return
	}
	if reader := d.Readers[tag.Get("as")]; reader != nil {
		reader(at, v, field.Addr().Interface())
		return
	}
	switch to := field.Addr().Interface().(type) {
	case *time.Duration:
		value, err := v.AsDuration()
		d.within(at, v, err, tag, int64(value), FormatDuration(value))
		*to = value
		return
	case *JSON:
		value, err := json.Marshal(v.Plain())
		if err != nil {
			d.Add(v.Line, "%s cannot be written as JSON", at.Where)
		}
		*to = value
		return
	}
	switch field.Kind() {
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		d.set(at, v, field.Elem(), tag)
	case reflect.Struct:
		d.Decode(at.Where+".", v, field.Addr().Interface())
	case reflect.Int, reflect.Int64:
		value, err := v.AsInt()
		d.within(at, v, err, tag, value, strconv.FormatInt(value, 10))
		field.SetInt(value)
	case reflect.Float64:
		value, err := v.AsFloat()
		d.fault(at, v, err)
		if low, high := floats(tag.Get("in")); err == nil && (value < low || value > high) {
			d.Add(v.Line, "%s is %g: it must be %s", at.Where, value, tag.Get("in"))
		}
		field.SetFloat(value)
	case reflect.Bool:
		if words := tag.Get("of"); words != "" {
			field.SetBool(strings.HasSuffix(words, ", "+d.text(at, v, tag)))
			return
		}
		value, err := v.AsBool()
		d.fault(at, v, err)
		field.SetBool(value)
	case reflect.String:
		field.SetString(d.text(at, v, tag))
	case reflect.Slice:
		texts := d.texts(at, v, tag)
		field.Set(reflect.ValueOf(texts))
	default:
		panic("strictyaml: unsupported type of " + at.Where)
	}
}

func (d *Decoder) fault(at Place, v *Node, err error) {
	if err != nil {
		d.Add(v.Line, "%s %v", at.Where, err)
	}
}

func (d *Decoder) within(at Place, v *Node, err error, tag reflect.StructTag, value int64, shown string) {
	d.fault(at, v, err)
	bounds := tag.Get("in")
	if err != nil || bounds == "" {
		return
	}
	span, zero := strings.CutPrefix(bounds, "0, or ")
	low, high, _ := strings.Cut(span, " to ")
	if (value < bound(low, tag) || value > bound(high, tag)) && (value != 0 || !zero) {
		d.Add(v.Line, "%s is %s: it must be %s", at.Where, shown, bounds)
	}
}

// bound parses a bound: an integer, or a duration if it has a unit.
func bound(text string, tag reflect.StructTag) int64 {
	if n, err := ParseInt(text); err == nil {
		return n
	}
	span, err := ParseDuration(text)
	if err != nil {
		panic("strictyaml: invalid bounds: " + tag.Get("in"))
	}
	return int64(span)
}

func floats(bounds string) (low, high float64) {
	_, _ = fmt.Sscanf(bounds, "%g to %g", &low, &high)
	return low, high
}

func (d *Decoder) text(at Place, v *Node, tag reflect.StructTag) string {
	text, err := v.AsText()
	d.fault(at, v, err)
	if err != nil {
		return ""
	}
	d.check(at, v, tag, text)
	if words := tag.Get("of"); words != "" && !slices.Contains(strings.Split(words, ", "), text) {
		d.Add(v.Line, "%s is %q: it must be one of %s", at.Where, text, words)
	}
	return text
}

func (d *Decoder) check(at Place, v *Node, tag reflect.StructTag, text string) {
	if check := tag.Get("check"); check != "" {
		if wrong := d.Checks[check](text); wrong != "" {
			d.Add(v.Line, "%s%s", at.Where, wrong)
		}
	}
}

func (d *Decoder) texts(at Place, v *Node, tag reflect.StructTag) []string {
	texts, err := v.AsTexts()
	d.fault(at, v, err)
	seen := map[string]bool{}
	for i, text := range texts {
		if tag.Get("once") != "" && seen[text] {
			d.Add(v.Items[i].Line, "%s has %q twice", at.Where, text)
		}
		seen[text] = true
		d.check(at, v.Items[i], tag, text)
	}
	return texts
}

// A Key describes a key of a mapping in the reference of settings.
type Key struct {
	Name    string // "max_rounds"; "budget.turn_tokens" within a mapping
	Type    string // "text", "duration", "list of text", ...
	Bounds  string // what is accepted; empty: anything of its type
	Default string // value or behaviour without the key
	Doc     string // description, with the meaning of 0
}

// Reference returns the keys of a struct and of nested structs. A row has a key's name, bounds, default
// and description. The type is that of the field or its tag "type". Bounds that are empty or start with
// a space or comma follow the bounds in the tags. own are further keys of the struct.
func Reference(of any, rows [][4]string, own ...OwnKey) []Key {
	keys := make([]Key, len(rows))
	for i, row := range rows {
		keys[i] = Key{Name: row[0], Bounds: row[1], Default: row[2], Doc: row[3]}
	}
	complete("", reflect.TypeOf(of), keys)
	for _, o := range own {
		for i := range keys {
			if keys[i].Name == o.Key {
				keys[i].describe(reflect.TypeOf(o.To).Elem(), o.Tag)
			}
		}
	}
	return keys
}

// describe sets the type of a key's values, and what is accepted.
func (k *Key) describe(of reflect.Type, tag reflect.StructTag) {
	k.Type = cmp.Or(tag.Get("type"), typeName(of, tag))
	if k.Bounds == "" || strings.ContainsAny(k.Bounds[:1], " ,") {
		k.Bounds = tag.Get("in") + orList(tag.Get("of")) + k.Bounds
	}
}

func complete(where string, of reflect.Type, keys []Key) {
	eachField(reflect.New(of).Elem(), func(names []string, tag reflect.StructTag, field reflect.Value) {
		for i := range keys {
			if name, ok := strings.CutPrefix(keys[i].Name, where); ok && slices.Contains(names, name) {
				keys[i].describe(field.Type(), tag)
			}
		}
		below := field.Type()
		if below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		if below.Kind() == reflect.Struct {
			complete(where+names[0]+".", below, keys)
		}
	})
}

func typeName(t reflect.Type, tag reflect.StructTag) string {
	switch {
	case tag.Get("of") != "":
		return "text"
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem(), tag)
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return "whole number"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "list of text"
	case t.Kind() == reflect.Map || t.Kind() == reflect.Struct:
		return "mapping"
	}
	return "text"
}

// orList writes "a, b, c" as "a, b or c".
func orList(words string) string {
	if i := strings.LastIndex(words, ", "); i >= 0 {
		return fmt.Sprintf("%s or %s", words[:i], words[i+2:])
	}
	return words
}
