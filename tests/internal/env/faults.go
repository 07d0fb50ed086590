package env

import "turnkeeper/internal/testrun"

// LongFaults is set by make faults and make crash: fault tests go on for minutes, and those that
// wait for timeouts are run.
var LongFaults = testrun.Long()

// FaultCount is how often a fault test does its faults.
func FaultCount(short, long int) int {
	if LongFaults {
		return long
	}
	return short
}
