package golden

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Brief returns a value as one line of text: of a struct the exported fields that are not zero, by name; of a pointer
// or an interface what it holds; a map in the order of its keys. show returns the text of values that are to look
// otherwise, and true. of is the name of the type and the field that hold the value, or empty.
func Brief(v reflect.Value, show func(of string, v reflect.Value) (string, bool)) string {
	return brief("", v, show)
}

func brief(of string, v reflect.Value, show func(string, reflect.Value) (string, bool)) string {
	if !v.IsValid() {
		return "null"
	}
	if text, ok := show(of, v); ok {
		return text
	}
	var parts []string
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "null"
		}
		return brief(of, v.Elem(), show)
	case reflect.Func, reflect.Chan:
		return "a " + v.Kind().String()
	case reflect.Map:
		for key, value := range v.Seq2() {
			parts = append(parts, brief("", key, show)+": "+brief(of, value, show))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case reflect.Array, reflect.Slice:
		for _, value := range v.Seq2() {
			parts = append(parts, brief(of, value, show))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.IsExported() && !value.IsZero() {
				if text := brief(v.Type().Name()+"."+field.Name, value, show); text != "" {
					parts = append(parts, field.Name+" "+text)
				}
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v.Interface())
}
