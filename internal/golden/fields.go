package golden

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Fields returns a line for each field within a value that is not the zero value, in the order of the source, or of the
// keys of a map. Functions are left out.
func Fields(name string, v reflect.Value) (lines []string) {
	switch {
	case !v.IsValid() || v.IsZero() || v.Kind() == reflect.Func:
		return nil
	case v.Type() == reflect.TypeFor[time.Duration]():
		return []string{fmt.Sprintf("%s=%s", name, v)}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return append([]string{name + " is set"}, Fields(name, v.Elem())...)
	case reflect.Interface:
		return Fields(name, v.Elem())
	case reflect.Struct:
		for field, value := range v.Fields() {
			lines = append(lines, Fields(name+"."+field.Name, value)...)
		}
		return lines
	case reflect.Map:
		for key, value := range v.Seq2() {
			lines = append(lines, fmt.Sprintf("%s has %v", name, key))
			lines = append(lines, Fields(fmt.Sprintf("%s.%v", name, key), value)...)
		}
		slices.Sort(lines)
		return lines
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return []string{fmt.Sprintf("%s=%s", name, v.Bytes())}
		}
		for i, value := range v.Seq2() {
			lines = append(lines, Fields(fmt.Sprintf("%s.%v", name, i), value)...)
		}
		return lines
	}
	return []string{fmt.Sprintf("%s=%v", name, v)}
}
