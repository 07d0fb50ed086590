package kept

import (
	"slices"
	"sync/atomic"
)

// A List is a list that never changes. Append returns a longer one, which shares its memory if it can. The zero value
// is empty. A List is safe for concurrent use.
type List[T any] struct {
	items []T
	used  *atomic.Int64 // how many elements of the array of items any List has; nil: there is no array
}

// Items returns the elements. The caller must not change them.
func (l List[T]) Items() []T { return slices.Clip(l.items) }

// Len returns the number of elements.
func (l List[T]) Len() int { return len(l.items) }

// Append returns the list with more elements at its end. It copies the list only if its array has no room, or if
// something else was appended to the list before.
func (l List[T]) Append(more ...T) List[T] {
	n, longer := len(l.items), len(l.items)+len(more)
	if l.used != nil && longer <= cap(l.items) && l.used.CompareAndSwap(int64(n), int64(longer)) {
		l.items = append(l.items, more...)
		return l
	}
	items := make([]T, longer, longer+longer/4+8)
	copy(items[copy(items, l.items):], more)
	l = List[T]{items: items, used: new(atomic.Int64)}
	l.used.Store(int64(longer))
	return l
}

// Grow returns l.Append(more...). If longest is l with the first of more at its end, it appends only the others, to
// longest, and so copies nothing although something was appended to l before.
func (l List[T]) Grow(longest List[T], equal func(a, b T) bool, more ...T) List[T] {
	n := len(l.items)
	again := len(longest.items) - n
	if again < 0 || again > len(more) || l.used == nil || longest.used != l.used ||
		!slices.EqualFunc(longest.items[n:], more[:again], equal) {
		return l.Append(more...)
	}
	return longest.Append(more[again:]...)
}
