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
	"turnkeeper/internal/testrun"
)

var (
	seeds = flag.Int("simulation.seeds", 0, "how many seeds to live through; 0: as the tier has it")
	first = flag.Uint64("simulation.seed", 1, "the first of them")
)

// One goroutine runs at a time in a world: more processors only get in each
// other's way.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m) // nobody who died goes on
}

// A verdict is what is left of a world.
type verdict struct {
	found     []string
	simulated time.Duration
	awake     time.Duration // with a process alive
	trace     trace
	visited   map[string]int
}

// live lives the world of a seed.
func live(t *testing.T, seed uint64, plant plant, keep bool) (v verdict) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, plant)
		w.trace.keep = keep
		v.found = w.run()
		v.simulated, v.awake = w.lived, w.awake
		v.trace, v.visited = w.trace, w.visited
	})
	return v
}

// enough seeds come by every point at which something can go wrong.
const enough = 50

// Whatever goes wrong in whatever order: nothing is lost and nothing is done
// twice. A seed that fails is lived through again by
// make sim SEED=n SEEDS=1.
func TestNothingLostNothingTwice(t *testing.T) {
	if *seeds == 0 {
		*seeds = testrun.Count(12, enough)
		if testing.Short() {
			*seeds = 3
		}
	}
	began := processorTime()
	var simulated, awake time.Duration
	steps, visited := 0, map[string]bool{}
	for i := range uint64(*seeds) {
		v := live(t, *first+i, plant{}, false)
		simulated += v.simulated
		awake += v.awake
		steps += v.trace.total
		for label := range v.visited {
			visited[label] = true
		}
		if len(v.found) > 0 {
			t.Fatalf("seed %d:\n%s\n%s", *first+i, strings.Join(v.found, "\n"), &v.trace)
		}
	}
	for _, label := range append(agentturn.FaultPoints(), "tick.locked", "tick.lost", "tick.spawned", "tick.picked", "tick.granted") {
		if !visited[label] && *seeds >= enough {
			t.Errorf("nothing could go wrong at %s", label)
		}
	}
	took := processorTime() - began
	t.Logf("%d seeds, %d steps, %.0f simulated hours, %.0f of them with a process alive, in %.1f s of processor time: %.0f and %.0f hours a minute",
		*seeds, steps, simulated.Hours(), awake.Hours(), took.Seconds(), simulated.Hours()/took.Minutes(), awake.Hours()/took.Minutes())
}

// processorTime is what this program has used: the clock on the wall also counts
// what else the machine does.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// A seed decides everything.
func TestASeedDecidesEverything(t *testing.T) {
	testrun.Slow(t)
	for seed := uint64(1); seed <= uint64(testrun.Count(2, 5)); seed++ {
		one, other := live(t, seed, plant{}, true), live(t, seed, plant{}, true)
		for i := range min(len(one.trace.all), len(other.trace.all)) {
			if a, b := one.trace.all[i], other.trace.all[i]; a != b {
				t.Errorf("seed %d: step %d was\n%sand then\n%s", seed, i, a, b)
				break
			}
		}
		if one.trace.total != other.trace.total {
			t.Errorf("seed %d: %d steps, and then %d", seed, one.trace.total, other.trace.total)
		}
	}
}

// unplanted is the same world without its fault.
func unplanted(p plant) plant { return plant{tilt: p.tilt} }

// cleanFinds returns what is found in the world of a seed without the fault. Many faults share a world.
func cleanFinds(t *testing.T, seed uint64, p plant, known map[uint64][]string) []string {
	if p.tilt != nil {
		return live(t, seed, unplanted(p), false).found
	}
	found, ok := known[seed]
	if !ok {
		found = live(t, seed, plant{}, false).found
		known[seed] = found
	}
	return found
}

// plantedSeeds bounds how many seeds it may take to find a planted fault. The one that found it
// last is tried first.
const plantedSeeds = 100

// The simulation finds each planted fault; the seed that finds it is clean
// without.
func TestPlantedFaultsAreFound(t *testing.T) {
	testrun.Slow(t)
	clean := map[uint64][]string{} // by seed
	for _, plant := range plants {
		t.Run(plant.name, func(t *testing.T) {
			for i := range uint64(plantedSeeds) {
				seed := i
				if i == 0 {
					seed = max(plant.seed, 1)
				}
				v := live(t, seed, plant, false)
				if !plant.in(v.found) {
					continue
				}
				t.Logf("found at seed %d: %s", seed, plant.finds)
				if found := cleanFinds(t, seed, plant, clean); len(found) > 0 {
					t.Errorf("and without the fault: %s", found[0])
				}
				return
			}
			t.Errorf("not found with %d seeds", plantedSeeds)
		})
	}
}
