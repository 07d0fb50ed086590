package program_test

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnkeeper/internal/membudget"
	"turnkeeper/internal/testrun"
	"turnkeeper/tools"
	"turnkeeper/tools/program"
)

// TestManyProgramsThatPrintMuch checks that calls of a program that prints 50 MB take no more memory
// than the budget and some garbage, and that each result is cut, not lost.
func TestManyProgramsThatPrintMuch(t *testing.T) {
	const size, largest = 64 << 20, 32 << 20
	memory := membudget.New(size, largest)
	print := program.Tool(tools.Spec{Name: "print"}, program.Program{Argv: []string{"/bin/sh", "-c",
		"yes 'a line of text' | head -c 50000000"}})
	var most atomic.Uint64
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as in a worker: the heap also holds what is not collected yet
	runtime.GC()
	before := heapNow()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most.Store(max(most.Load(), heapNow()))
			case <-stop:
				return
			}
		}
	}()
	var group sync.WaitGroup
	slots := make(chan struct{}, 27) // calls at once
	for range testrun.UnderRace(14, testrun.Count(14, 108)) {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			account := memory.Account()
			defer account.Close()
			got := tools.Execute(membudget.With(t.Context(), account.Lease()), print,
				tools.Call{Arguments: json.RawMessage(`{}`)}, tools.ExecuteOptions{Timeout: 10 * time.Minute})
			if r := got.Result; got.Outcome != tools.Succeeded || !r.Incomplete || r.RawBytes != 50_000_000 ||
				len(r.Text) != 10_000_000 || !strings.HasPrefix(r.Text, "a line") {
				t.Errorf("%s: %d of %d bytes, %.100q", got.Outcome, len(r.Text), r.RawBytes, r.Text)
			}
		})
	}
	group.Wait()
	close(stop)
	<-done
	grown := max(most.Load(), before) - before
	if t.Logf("%d MiB", grown>>20); grown > 220<<20 {
		t.Errorf("the calls take %d MiB", grown>>20)
	}
	if use := memory.Use(); use != (membudget.Use{}) {
		t.Errorf("%+v", use)
	}
}

func heapNow() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
