package mcp

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestOnlyOneUseIsTheFirst uses a server from several calls at once: one of them is the first.
func TestOnlyOneUseIsTheFirst(t *testing.T) {
	h := &host{}
	var first atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if h.use() {
				first.Add(1)
			}
		})
	}
	group.Wait()
	if n := first.Load(); n != 1 {
		t.Errorf("%d uses were the first", n)
	}
	if (&host{closed: true}).use() {
		t.Error("the first use of a server that was closed would list its tools")
	}
}
