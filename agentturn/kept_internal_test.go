package agentturn

import (
	"strings"
	"testing"
	"time"

	"turnkeeper/tools"
)

// TestKeptResultsAreBounded checks that the least recently used results go when there are too many, that a new result
// takes the place of an old one, and that one which has expired takes no room.
func TestKeptResultsAreBounded(t *testing.T) {
	var kept keptResults
	now := time.Now()
	key := func(n int) keptKey { return keptKey{byte(n), byte(n >> 8)} }
	put := func(n, bytes int) {
		kept.put(&keptResult{key: key(n), result: tools.Result{Text: strings.Repeat("x", 3)}, since: now,
			expires: now.Add(time.Minute), bytes: bytes})
	}
	const size = maxKept / 4
	for n := range 4 {
		put(n, size)
	}
	if kept.get(key(0), now) == nil || kept.bytes != maxKept {
		t.Fatalf("of four quarters the first is not kept; %d bytes", kept.bytes)
	}
	put(4, 1)
	for n, want := range []bool{true, false, true, true, true} { // 1 was used least recently
		if got := kept.get(key(n), now) != nil; got != want {
			t.Errorf("result %d is kept: %t", n, got)
		}
	}
	put(0, size-1)
	if kept.bytes != maxKept-size || len(kept.all) != 4 || kept.order.Len() != 4 {
		t.Errorf("%d bytes, %d results, %d in order", kept.bytes, len(kept.all), kept.order.Len())
	}
	if kept.get(key(0), now.Add(time.Minute-1)) == nil || kept.get(key(0), now.Add(time.Minute)) != nil {
		t.Error("a result is kept too long, or not long enough")
	}
	if kept.bytes != 2*size+1 {
		t.Errorf("after one has expired, %d bytes", kept.bytes)
	}
}
