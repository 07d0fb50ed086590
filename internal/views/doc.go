// Package views defines the JSON objects that the HTTP API answers with and "turnctl -o json"
// prints.
//
// Fields keep their names and meanings; new ones may be added. Names of durations end in _ms, a
// missing value is null, and an empty list is [].
package views

import "time"

// All returns the views of a list. It never returns nil, which JSON would write as null.
func All[N, V any](nouns []N, view func(N) V) []V {
	all := make([]V, len(nouns))
	for i, noun := range nouns {
		all[i] = view(noun)
	}
	return all
}

// Millis returns a duration in milliseconds, 0 if it is negative.
func Millis(d time.Duration) int64 { return max(d.Milliseconds(), 0) }

// OrNull returns a pointer to value, or nil for the zero value.
func OrNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
