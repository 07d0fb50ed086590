package httpapi

import "turnkeeper/internal/views"

// A list is one page of a list.
type list[V any] struct {
	Items []V    `json:"items"`
	Next  *int64 `json:"next" doc:"cursor of the next page; null: this is the last page"`
}

func listOf[N, V any](nouns []N, view func(N) V, next int64) list[V] {
	return list[V]{views.All(nouns, view), views.OrNull(next)}
}
