package httpapi

import "turnkeeper/internal/views"

// A list is an array in an object. Next is the cursor with which the next page
// begins; null: there is none.
type list[V any] struct {
	Items []V    `json:"items"`
	Next  *int64 `json:"next" doc:"the cursor of the next page; null: there is none"`
}

func listOf[N, V any](nouns []N, view func(N) V, next int64) list[V] {
	return list[V]{views.All(nouns, view), views.OrNull(next)}
}
