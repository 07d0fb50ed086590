package turnkeepertest

import (
	"testing"
	"testing/synctest"

	"turnkeeper/internal/memory"
)

// Planted makes the store of a scenario faulty.
func Planted(s Scenario, plant func(*memory.Store)) Scenario {
	s.plant = plant
	return s
}

// ProblemsOf runs a scenario in a bubble of fake time, and returns its problems.
func ProblemsOf(t *testing.T, s Scenario) (problems []string) {
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.live()
		problems = w.result().Problems
	})
	return problems
}
