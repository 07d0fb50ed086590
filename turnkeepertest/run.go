package turnkeepertest

import (
	"testing"
	"testing/synctest"
)

// Run runs a scenario once, with the given faults, in a bubble of fake time
// (testing/synctest). It reports through t every invariant that does not hold,
// every promise of a tool that was broken, and a fault that never struck, and
// then calls the scenario's Check; when anything failed it logs the trace.
//
// t is a *testing.T, unless the scenario is in RealTime.
func Run(t testing.TB, s Scenario, faults ...Fault) *Result {
	t.Helper()
	if s.RealTime {
		return run(t, s, faults)
	}
	outside, ok := t.(*testing.T)
	if !ok {
		t.Fatalf("turnkeepertest: fake time needs the *testing.T of a test, not a %T; or set RealTime", t)
	}
	var r *Result
	synctest.Test(outside, func(t *testing.T) { r = run(t, s, faults) })
	if r == nil {
		t.FailNow() // it could not run at all
	}
	return r
}

func run(t testing.TB, s Scenario, faults []Fault) *Result {
	t.Helper()
	w, err := newWorld(s, faults)
	if err != nil {
		t.Fatalf("turnkeepertest: %v", err)
	}
	w.live()
	r := w.result()
	for _, problem := range r.Problems {
		t.Errorf("%s", problem)
	}
	if s.Check == nil {
		tell(t, r, len(r.Problems) > 0)
		return r
	}
	defer func() { tell(t, r, t.Failed()) }()
	s.Check(t, r)
	return r
}

func tell(t testing.TB, r *Result, failed bool) {
	t.Helper()
	if failed {
		t.Logf("what happened:\n%s", r.Trace)
	}
}

// CrashEverywhere runs a scenario without a fault to learn which points it
// passes, and then once for each of them with a crash there, each as a subtest
// with the point's name. setUp makes a fresh scenario, with fresh fakes, for
// every run; it is called within the run's bubble.
func CrashEverywhere(t *testing.T, setUp func(t *testing.T) Scenario) {
	t.Helper()
	everywhere(t, setUp, crash, (*Result).points)
}

// PauseEverywhere is CrashEverywhere with workers that are stopped past their
// lease at each point, and wake when another has answered.
func PauseEverywhere(t *testing.T, setUp func(t *testing.T) Scenario) {
	t.Helper()
	everywhere(t, setUp, pause, (*Result).points)
}

// LoseAnswersEverywhere runs a scenario once for each of its writes, with the
// answer to that write lost.
func LoseAnswersEverywhere(t *testing.T, setUp func(t *testing.T) Scenario) {
	t.Helper()
	everywhere(t, setUp, lose, (*Result).writes)
}

func (r *Result) points() []Point { return r.Points }
func (r *Result) writes() []Point { return r.Writes }

func everywhere(t *testing.T, setUp func(t *testing.T) Scenario, k kind, at func(*Result) []Point) {
	t.Helper()
	var learned *Result
	if !t.Run("without a fault", func(t *testing.T) { learned = fresh(t, setUp) }) {
		return // every other run would fail alike
	}
	for _, point := range at(learned) {
		f := Fault{k, point}
		t.Run(f.String(), func(t *testing.T) { fresh(t, setUp, f) })
	}
}

// fresh runs a new scenario, made where it runs.
func fresh(t *testing.T, setUp func(t *testing.T) Scenario, faults ...Fault) (r *Result) {
	t.Helper()
	inRealTime := false
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t)
		if inRealTime = s.RealTime; !inRealTime {
			r = run(t, s, faults)
		}
	})
	if inRealTime {
		r = run(t, setUp(t), faults)
	}
	return r
}
