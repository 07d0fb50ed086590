package env

import "os"

// LongFaults is set by "make faults": fault tests go on for minutes, and those
// that wait for time-outs are run.
var LongFaults = os.Getenv("TURNKEEPER_FAULTS") == "long"

// FaultCount is how often a fault test does its faults.
func FaultCount(short, long int) int {
	if LongFaults {
		return long
	}
	return short
}
