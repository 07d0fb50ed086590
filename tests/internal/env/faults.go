package env

import "turnkeeper/internal/testrun"

// LongFaults is set by make faults and make crash: fault tests go on for minutes, and those that
// wait for timeouts are run.
var LongFaults = testrun.Long()

// FaultCount returns long if LongFaults is set, and short if not.
func FaultCount(short, long int) int {
	if LongFaults {
		return long
	}
	return short
}
