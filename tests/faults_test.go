package tests_test

import (
	"os"
)

// longFaults is set by "make faults": fault tests go on for minutes, and those
// that wait for time-outs are run.
var longFaults = os.Getenv("TURNKEEPER_FAULTS") == "long"

// faults is how often a fault test does its faults.
func faults(short, long int) int {
	if longFaults {
		return long
	}
	return short
}
