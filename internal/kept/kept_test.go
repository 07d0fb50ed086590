package kept_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"turnkeeper/internal/kept"
)

func TestMap(t *testing.T) {
	t.Parallel()
	const limit = 100
	var m kept.Map[int, string]
	if got := m.Get(1); got != "" {
		t.Errorf("an empty map has %q", got)
	}
	m.Put(1, "a quarter", 25, limit)
	m.Put(2, "more", 26, limit)
	if m.Get(1) != "a quarter" || m.Get(2) != "" {
		t.Errorf("kept %q and %q", m.Get(1), m.Get(2))
	}
	m.Put(1, "larger", 26, limit)
	if got := m.Get(1); got != "" {
		t.Errorf("what a value that is too large replaces is kept: %q", got)
	}
	for i := range 1000 {
		m.Put(i%50, "x", 10, limit)
		m.Put(i%50, "y", 10, limit)                 // counted once
		if n := len(values(&m)); n != min(i+1, 8) { // seven eighths of the bytes
			t.Fatalf("after %d values of 10 bytes, %d are kept", i+1, n)
		}
		if m.Get(i%50) != "y" {
			t.Fatal("the newest value was evicted")
		}
	}
}

// Small values share an eighth of the bytes, and do not evict large ones, nor the other way round.
func TestSmallValuesHaveTheirOwnBytes(t *testing.T) {
	t.Parallel()
	const limit, small = 25_600, 25_600/256 - 1
	var m kept.Map[int, string]
	kept := func(from, to int) (n int) {
		for i := from; i < to; i++ {
			if m.Get(i) != "" {
				n++
			}
		}
		return n
	}
	for i := range 1000 {
		m.Put(i, "small", small, limit)
		m.Put(1000+i, "large", small+1, limit)
	}
	if n := kept(0, 1000); n != limit/8/small {
		t.Errorf("%d small values are kept, %d take an eighth", n, limit/8/small)
	}
	if n := kept(1000, 2000); n != limit*7/8/(small+1) {
		t.Errorf("%d large values are kept, %d take the rest", n, limit*7/8/(small+1))
	}
	m.Put(1999, "now small", 1, limit)
	m.Put(999, "now large", small+1, limit)
	if m.Get(1999) != "now small" || m.Get(999) != "now large" || kept(1000, 2000) != limit*7/8/(small+1) {
		t.Errorf("%q and %q, and %d others", m.Get(1999), m.Get(999), kept(1000, 2000))
	}
	for _, key := range []int{1999, 999} {
		if m.Put(key, "too large", limit, limit); m.Get(key) != "" {
			t.Errorf("what a value that is too large replaces is kept: %q", m.Get(key))
		}
	}
}

func values(m *kept.Map[int, string]) (all []int) {
	for i := range 50 {
		if m.Get(i) != "" {
			all = append(all, i)
		}
	}
	return all
}

// TestLists appends at random to random lists, and compares each with its elements.
func TestLists(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	type known struct {
		list kept.List[int]
		want []int
	}
	all := []known{{}}
	equal := func(a, b int) bool { return a == b }
	for i := range 3000 {
		from := all[r.IntN(len(all))]
		if r.IntN(2) == 0 {
			from = all[len(all)-1]
		}
		more := make([]int, r.IntN(4))
		for j := range more {
			more[j] = i % (1 + r.IntN(3))
		}
		next := known{want: slices.Concat(from.want, more)}
		if r.IntN(2) == 0 {
			next.list = from.list.Append(more...)
		} else {
			next.list = from.list.Grow(all[r.IntN(len(all))].list, equal, more...)
		}
		if all = append(all, next); r.IntN(50) == 0 {
			all = all[len(all)/2:]
		}
		for _, k := range all {
			if !slices.Equal(k.list.Items(), k.want) || k.list.Len() != len(k.want) {
				t.Fatalf("a list of %d elements changed", len(k.want))
			}
		}
	}
}

// TestAListGrowsInPlace grows a list step by step, and once in another way.
func TestAListGrowsInPlace(t *testing.T) {
	t.Parallel()
	base := kept.List[int]{}.Append(make([]int, 1000)...)
	longest, equal := base, func(a, b int) bool { return a == b }
	more := []int{1, 2, 3}
	for n := range more {
		longest = base.Grow(longest, equal, more[:n+1]...)
		if &longest.Items()[0] != &base.Items()[0] || longest.Len() != 1001+n {
			t.Errorf("with %d more elements the list was copied", n+1)
		}
	}
	if again := base.Grow(longest, equal, more...); again.Len() != 1003 || &again.Items()[0] != &base.Items()[0] {
		t.Error("the same list again was copied")
	}
	if other := base.Grow(longest, equal, 1, 9); &other.Items()[0] == &base.Items()[0] || longest.Items()[1001] != 2 {
		t.Error("a list that goes on differently shares its memory")
	}
}

// TestListsAtOnce appends to one list in several goroutines.
func TestListsAtOnce(t *testing.T) {
	t.Parallel()
	base := kept.List[int]{}.Append(1, 2, 3)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			list := base
			for j := range 20 {
				list = list.Append(i, j)
			}
			for j := range 20 {
				if list.Items()[3+2*j] != i || list.Items()[4+2*j] != j {
					t.Errorf("list %d has %v", i, list.Items())
					return
				}
			}
		})
	}
	group.Wait()
}
