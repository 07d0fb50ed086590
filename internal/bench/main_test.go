package bench_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"turnkeeper/internal/bench"
	"turnkeeper/storage/storagetest"
)

// TestMain runs the processes of a benchmark, which are this program again, or the tests. No test
// leaves a goroutine behind.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "bench" && os.Args[2] == "process" {
		if err := bench.Part(context.Background(), os.Args[3], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	storagetest.Main(m)
}
