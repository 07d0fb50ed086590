package golden

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Now is the present of filled values: all their times lie before it.
var Now = time.Date(2026, 3, 4, 9, 40, 0, 0, time.UTC)

// A filler fills values: each text with the name of its field, and each number with another one. Times and durations
// differ by
// minutes, below an hour, so that none is rounded to that of another field.
type filler int

// Filled returns a value without empty fields. A map stays empty. Values that are filled from other numbers differ
// in all fields.
func Filled[T any](n int) (value T) {
	Fill(&value, n)
	return value
}

// Fill fills the value that a pointer points to.
func Fill(pointer any, n int) {
	f := filler(n)
	f.fill(reflect.ValueOf(pointer).Elem(), "value")
}

// With returns a filled value after a change.
func With[T any](n int, change func(*T)) T {
	v := Filled[T](n)
	change(&v)
	return v
}

func (f *filler) fill(v reflect.Value, name string) {
	*f++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(Now.Add(-time.Duration(*f%50+1) * time.Minute)))
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(time.Duration(*f%50+1) * time.Minute))
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("%s%d", strings.ToLower(name), *f))
	case v.CanInt():
		v.SetInt(int64(*f))
	case v.CanFloat():
		v.SetFloat(float64(*f) + 0.5)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8: // may be JSON
		v.SetBytes(fmt.Appendf(nil, `"%s%d"`, strings.ToLower(name), *f))
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), name)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), v.Type().Field(i).Name)
			}
		}
	}
}
