// Package views is what programs read of Turnkeeper: the objects that the HTTP API
// answers with and that "turnctl -o json" prints. It is the one place of their
// names and meanings.
//
// Fields keep their names and meanings; new ones may be added. Durations end in
// _ms, what does not exist (yet) is null, and a list without entries is [].
package views

import "time"

// All shows each of some nouns. It never gives null.
func All[N, V any](nouns []N, view func(N) V) []V {
	all := make([]V, len(nouns))
	for i, noun := range nouns {
		all[i] = view(noun)
	}
	return all
}

// Millis returns a duration in milliseconds, not negative.
func Millis(d time.Duration) int64 { return max(d.Milliseconds(), 0) }

// OrNull returns null for the zero value.
func OrNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
