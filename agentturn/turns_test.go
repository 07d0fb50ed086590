package agentturn_test

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/testrun"
)

var (
	turnSeed  = flag.Uint64("turns.seed", 1, "first seed of the random turns")
	turnSeeds = flag.Int("turns.seeds", 0, "number of seeds to run; 0: the default of the test tier")
)

// waysOf returns the ways in which the turn of a seed is run. The first is the plain one.
func waysOf(seed uint64, points int) []way {
	r := rand.New(rand.NewPCG(seed, 2))
	strike := func(n int) (at []int) {
		for range n {
			at = append(at, 1+r.IntN(points+1))
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
		{name: "with lost answers", lost: 1 + r.Uint64(), backwards: true},
		{name: "with a loss", strikes: strike(1)},
		{name: "with three losses", strikes: strike(3), fresh: true},
		{name: "with a shutdown", strikes: strike(2), stops: true},
		{name: "with a loss in the background", strikes: strike(1), background: true, async: true},
		{name: "with a loss of a job", strikes: strike(2), detached: true, async: true},
	}
}

// perform runs a play in a way. It returns what became of it, and what is wrong.
func perform(t *testing.T, p play, w way) (out outcome, points int, uncertain bool, faults []string) {
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
	if diff := cmp.Diff(foretell(p).outcome(), got); diff != "" && !(len(w.strikes) > 0 && uncertain) {
		faults = append(faults, "the outcome (-want +got):\n"+diff)
	}
	return strings.Join(faults, "\n")
}

// shrink returns a smaller play that is wrong too.
func shrink(t *testing.T, p play, w way) play {
	for budget := 200; budget > 0; {
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

// TestAnyTurnAnyWay runs random turns in ways that must not change what becomes of them: the calls that tools receive, the asks, the
// labels and the reply are those that the script and the promises decide. To repeat a failing seed, run
// go test ./agentturn -run TestAnyTurnAnyWay -turns.seed N -turns.seeds 1.
func TestAnyTurnAnyWay(t *testing.T) {
	n := *turnSeeds
	if n == 0 {
		n = testrun.UnderRace(20, testrun.Count(20, 300))
		if testing.Short() {
			n = 4
		}
	}
	for i := range uint64(n) {
		seed := *turnSeed + i
		p := newPlay(seed)
		_, points, _, _ := perform(t, p, way{})
		for _, w := range waysOf(seed, points) {
			if wrong(t, p, w) == "" {
				continue
			}
			p = shrink(t, p, w)
			t.Fatalf("seed %d: %+v\n%s\n%s", seed, w, p, wrong(t, p, w))
		}
	}
}
