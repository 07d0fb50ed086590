package jobs_test

import (
	"flag"
	"fmt"
	"testing"

	"turnkeeper/internal/memory/memorytest"
	"turnkeeper/internal/storesuite"
	"turnkeeper/internal/testrun"
)

var (
	pairSeeds = flag.Int("pair.seeds", 0,
		"number of programs that TestStoresAgree runs; 0: the default of the test tier")
	pairSeed  = flag.Uint64("pair.seed", 1, "seed of its first program")
	pairSteps = flag.Int("pair.steps", 40, "operations of each of its programs")
)

var pair = storesuite.Pair{Names: [2]string{"memory", "Postgres"}, Open: [2]func(*testing.T) storesuite.Store{
	memorytest.Open, openAnother}}

// TestStoresAgreeOnBatches writes to more turns at once than one statement does.
func TestStoresAgreeOnBatches(t *testing.T) {
	testrun.Guard(t)
	pair.Batch(t, testrun.Count(65, 130))
}

// TestStoresAgree runs programs of random operations on this store and the one in memory, and compares all that can be
// read of them.
func TestStoresAgree(t *testing.T) {
	testrun.Guard(t)
	seeds := *pairSeeds
	if seeds == 0 {
		seeds = testrun.Count(2, 20)
	}
	for i := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", *pairSeed+i), func(t *testing.T) { pair.Compare(t, *pairSeed+i, *pairSteps) })
	}
}
