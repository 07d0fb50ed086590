package turnkeepertest

import (
	"testing"
	"testing/synctest"
)

// Run runs a scenario once, with the given faults, in a bubble of fake time
// (testing/synctest). It reports through t every invariant that does not hold, every
// broken promise of a tool, and every fault whose point was never passed. Then it calls
// the scenario's Check. If anything failed, it logs the trace.
//
// t must be a *testing.T, unless the scenario sets RealTime.
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
		t.FailNow() // there is no run to check
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

// CrashEverywhere runs a scenario without a fault to learn which points it passes, and
// then once for each of them with a crash there. Each run is a subtest with the point's
// name. setUp makes a fresh scenario, with fresh fakes, for every run; it is called
// within the run's bubble.
func CrashEverywhere(t *testing.T, setUp func(t *testing.T) Scenario) {
	t.Helper()
	everywhere(t, setUp, crash, (*Result).points)
}

// PauseEverywhere is like CrashEverywhere, but stops workers at each point for longer
// than their lease, and resumes them after another worker has written the reply.
func PauseEverywhere(t *testing.T, setUp func(t *testing.T) Scenario) {
	t.Helper()
	everywhere(t, setUp, pause, (*Result).points)
}

// LoseAnswersEverywhere is like CrashEverywhere, but runs the scenario once for each of
// its writes, and loses the answer to that write.
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
		return // every other run would fail for the same reason
	}
	for _, point := range at(learned) {
		f := Fault{k, point}
		t.Run(f.String(), func(t *testing.T) { fresh(t, setUp, f) })
	}
}

// fresh makes a new scenario, within its bubble, and runs it.
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
