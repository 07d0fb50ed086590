package agentturn_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/agentturn"
	"turnkeeper/internal/testrun"
)

var (
	turnSeed  = flag.Uint64("turns.seed", 1, "first seed of the random turns")
	turnWhole = flag.Bool("turns.noshrink", false, "show a failing script whole")
	turnSeeds = flag.Int("turns.seeds", 0, "number of seeds to run; 0: the default of the test tier")
)

// waysOf returns the ways in which the turn of a seed is run. The first is the plain one.
// points are the fault points that this passes, with their numbers. Half of the strikes are around the run of a call.
func waysOf(seed uint64, points map[string]int) []way {
	r := rand.New(rand.NewPCG(seed, 2))
	labels := slices.Sorted(maps.Keys(points))
	around := slices.DeleteFunc(slices.Clone(labels), func(label string) bool {
		return label != agentturn.PointStartAfter && label != agentturn.PointChecked &&
			label != agentturn.PointEffectDone
	})
	strikes := func(n int) (at []strike) {
		for range n {
			from := labels
			if len(around) > 0 && r.IntN(2) == 0 {
				from = around
			}
			label := from[r.IntN(len(from))]
			at = append(at, strike{label, 1 + r.IntN(points[label])})
		}
		return at
	}
	return []way{
		{name: "plainly"},
		{name: "in the background", background: true},
		{name: "in jobs of their own", detached: true},
		{name: "with asynchronous sub-agents", async: true},
		{name: "all at once", async: true, background: true, detached: true},
		{name: "with other names", renamed: true},
		{name: "with rules elsewhere", elsewhere: true},
		{name: "in more answers", split: true},
		{name: "by another worker each time", fresh: true, ahead: 1},
		{name: "step by step", stepwise: true},
		{name: "with reads while the model speaks", early: true},
		{name: "with reads while the model speaks, in the background", early: true, background: true, async: true},
		{name: "with reads while the model speaks, and a loss", early: true, strikes: strikes(1)},
		{name: "with reads while the model speaks, and a shutdown", early: true, strikes: strikes(2), stops: true},
		{name: "with a model that fails", flaky: true},
		{name: "with a model that fails, and all at once", flaky: true, async: true, background: true},
		{name: "with lost answers", lost: 1 + r.Uint64(), backwards: true},
		{name: "with a loss", strikes: strikes(1)},
		{name: "with a loss, step by step", strikes: strikes(1), stepwise: true},
		{name: "with three losses", strikes: strikes(3), fresh: true},
		{name: "with a shutdown", strikes: strikes(2), stops: true},
		{name: "with a loss in the background", strikes: strikes(1), background: true, async: true},
		{name: "with a loss of a job", strikes: strikes(2), detached: true, async: true},
	}
}

// perform runs a play in a way. It returns what became of it, and what is wrong.
func perform(t *testing.T, p play, w way) (out outcome, points map[string]int, uncertain bool, faults []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(p, w)
		s.run(t)
		faults = s.promises()
		out, points, uncertain = s.outcome(), s.points, s.uncertain()
	})
	return out, points, uncertain, faults
}

// wrong returns what is wrong with a play in a way; empty: nothing.
func wrong(t *testing.T, p play, w way) string {
	got, _, uncertain, faults := perform(t, p, w)
	if diff := cmp.Diff(foretell(p).outcome(), got); diff != "" && (len(w.strikes) == 0 || !uncertain) {
		faults = append(faults, "the outcome (-want +got):\n"+diff)
	}
	return strings.Join(faults, "\n")
}

// shrink returns a smaller play that is wrong too.
func shrink(t *testing.T, p play, w way) play {
	for budget := 200; budget > 0 && !*turnWhole; {
		smaller := false
		for _, q := range p.smaller() {
			if budget--; budget < 0 {
				return p
			}
			if len(q.rounds) > 0 && wrong(t, q, w) != "" {
				p, smaller = q, true
				break
			}
		}
		if !smaller {
			return p
		}
	}
	return p
}

// TestAnyTurnAnyWay runs random turns in ways that must not change what becomes of them: the calls that tools receive,
// the asks, the labels and the reply are those that the script and the promises decide. To repeat a failing seed, run
// go test ./agentturn -run TestAnyTurnAnyWay -turns.seed N -turns.seeds 1.
func TestAnyTurnAnyWay(t *testing.T) {
	n := *turnSeeds
	if n == 0 {
		n = testrun.UnderRace(20, testrun.Count(25, 300))
		if testing.Short() {
			n = 4
		}
	}
	for i := range uint64(n) {
		seed := *turnSeed + i
		p := newPlay(seed)
		_, points, _, _ := perform(t, p, way{})
		for _, w := range waysOf(seed, points) {
			faults := wrong(t, p, w)
			if faults == "" {
				continue
			}
			if q := shrink(t, p, w); q.String() != p.String() {
				p, faults = q, wrong(t, q, w)
			}
			t.Fatalf("seed %d: %+v\n%s\n%s", seed, w, p, faults)
		}
	}
}
