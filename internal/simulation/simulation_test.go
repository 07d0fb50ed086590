package simulation_test

import (
	"flag"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"turnkeeper/agentturn"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/testrun"
)

var (
	seeds = flag.Int("simulation.seeds", 0, "number of seeds to run; 0: the default of the test tier")
	first = flag.Uint64("simulation.seed", 1, "first seed")
)

// Only one goroutine of a simulation runs at a time: more processors would make it slower.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m) // no goroutine of a killed process is left
}

// A result is what a simulation found.
type result struct {
	found       []string
	simulated   time.Duration
	withProcess time.Duration // with a process alive
	trace       trace
	visited     map[string]int
}

// simulate runs the simulation of a seed. keep stores every step in the trace.
func simulate(t *testing.T, seed uint64, m mutation, keep bool) (r result) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, seed, m)
		e.trace.keep = keep
		r.found = e.run()
		r.simulated, r.withProcess = e.simulated, e.withProcess
		r.trace, r.visited = e.trace, e.visited
	})
	return r
}

// enough is a number of seeds that visit every fault point.
const enough = 50

// Faults in any order lose no message and repeat no effect of kind once. To repeat a failing seed,
// run make sim SEED=n SEEDS=1.
func TestNothingLostNothingTwice(t *testing.T) {
	if *seeds == 0 {
		*seeds = testrun.UnderRace(5, testrun.Count(12, enough))
		if testing.Short() {
			*seeds = 3
		}
	}
	began := processorTime()
	var simulated, withProcess time.Duration
	steps, visited := 0, map[string]bool{}
	for i := range uint64(*seeds) {
		r := simulate(t, *first+i, mutation{}, false)
		simulated += r.simulated
		withProcess += r.withProcess
		steps += r.trace.total
		for label := range r.visited {
			visited[label] = true
		}
		if len(r.found) > 0 {
			t.Fatalf("seed %d:\n%s\n%s", *first+i, strings.Join(r.found, "\n"), &r.trace)
		}
	}
	for _, label := range append(agentturn.FaultPoints(), "tick.locked", "tick.lost", "tick.spawned", "tick.expired",
		"tick.picked", "tick.granted", "tick.handed", labelledCall) {
		if !visited[label] && *seeds >= enough {
			t.Errorf("no seed visited %s", label)
		}
	}
	took := processorTime() - began
	t.Logf(
		"%d seeds, %d steps, %.0f simulated hours, %.0f of them with a process alive, in %.1f s of processor time: %.0f and %.0f hours a minute",
		*seeds, steps, simulated.Hours(), withProcess.Hours(), took.Seconds(), simulated.Hours()/took.Minutes(),
		withProcess.Hours()/took.Minutes())
}

// processorTime returns the processor time of this program. The wall clock would also count other
// programs.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Two simulations of a seed do the same steps. Every other seed has labels.
func TestASeedDecidesEverything(t *testing.T) {
	testrun.Slow(t)
	for seed := uint64(1); seed <= uint64(testrun.UnderRace(1, testrun.Count(2, 5))); seed++ {
		m := mutation{}
		if seed%2 == 0 {
			m.adjust = contentIsLabelled
		}
		one, other := simulate(t, seed, m, true), simulate(t, seed, m, true)
		for i := range min(len(one.trace.all), len(other.trace.all)) {
			if a, b := one.trace.all[i], other.trace.all[i]; a != b {
				t.Errorf("seed %d: step %d is\n%sin the first run and\n%sin the second", seed, i, a, b)
				break
			}
		}
		if one.trace.total != other.trace.total {
			t.Errorf("seed %d: %d steps in the first run, %d in the second", seed, one.trace.total, other.trace.total)
		}
	}
}

// withoutBug returns the mutation with its profile only.
func withoutBug(m mutation) mutation { return mutation{name: "none", adjust: m.adjust} }

// cleanFinds returns what the seed finds without the mutation. known caches the results by seed.
func cleanFinds(t *testing.T, seed uint64, m mutation, known map[uint64][]string) []string {
	if m.adjust != nil {
		return simulate(t, seed, withoutBug(m), false).found
	}
	found, ok := known[seed]
	if !ok {
		found = simulate(t, seed, withoutBug(mutation{}), false).found
		known[seed] = found
	}
	return found
}

// The binding of a grant and the registry of a process suffice: nothing breaks if the jobs of turns that are handed
// over are in the queue too.
func TestTurnsThatAreHandedOverAndQueuedRunOnce(t *testing.T) {
	testrun.Slow(t)
	m := mutation{bugs: []memory.Bug{memory.BugHandedQueued}, adjust: handsOver}
	for seed := range uint64(testrun.UnderRace(2, testrun.Count(4, 20))) {
		if r := simulate(t, seed+1, m, false); len(r.found) > 0 {
			t.Errorf("seed %d: %s", seed+1, strings.Join(r.found, "\n"))
		}
	}
}

// maxMutationSeeds is the maximum number of seeds that are tried to find a mutation. The mutation's own seed is tried
// first: choose one that finds it quickly, because the search through the others may take most of the time of this
// package.
const maxMutationSeeds = 100

// The simulation finds each mutation, and the same seed finds nothing without it. CI tries all of them.
func TestMutationsAreFound(t *testing.T) {
	testrun.Slow(t)
	clean := map[uint64][]string{} // by seed
	for _, m := range testrun.Sample(mutations, testrun.UnderRace(3, 10)) {
		t.Run(m.name, func(t *testing.T) {
			for i := range uint64(maxMutationSeeds) {
				seed, first := i, max(m.seed, 1)
				if i == 0 {
					seed = first
				} else if i == first {
					continue
				}
				r := simulate(t, seed, m, false)
				if !m.in(r.found) {
					continue
				}
				t.Logf("found at seed %d: %s", seed, m.want)
				if found := cleanFinds(t, seed, m, clean); len(found) > 0 {
					t.Errorf("found without the mutation too: %s", found[0])
				}
				return
			}
			t.Errorf("not found with %d seeds", maxMutationSeeds)
		})
	}
}
