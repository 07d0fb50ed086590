package turnkeepertest

import "turnkeeper/internal/memory"

// Planted makes the store of a scenario faulty.
func Planted(s Scenario, plant func(*memory.Store)) Scenario {
	s.plant = plant
	return s
}
