package env

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

// parallel is the number of tests of a package that run at the same time. Most of the time they
// wait for leases, heartbeats and model servers.
const parallel = "8"

// Main runs the tests of a package and exits (see storagetest.Main).
func Main(m *testing.M) {
	flag.Parse()
	if err := limitParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storagetest.Main(m)
}

// limitParallel sets the number of parallel tests, unless the command line did.
func limitParallel() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", parallel)
}

// quick lists the tests that run with -short: one for each way into the product. make quick omits
// tests/api and tests/faults, which take longer to link.
var quick = []string{"TestAToolCallThenText", "TestAKilledWorkersTurnIsTakenOver", "TestTheOpenAIClientOfGo",
	"TestWebhook"}

// SkipInQuick skips a test with -short, unless quick lists it. New and NewOn call it.
func SkipInQuick(t testing.TB) {
	t.Helper()
	if testing.Short() && !slices.Contains(quick, t.Name()) {
		t.Skip("runs without -short")
	}
}

// LongFaults is set in make faults and make crash: fault tests run for minutes, and those that wait
// for timeouts run.
var LongFaults = testrun.Long()

// FaultCount returns long if LongFaults is set, and short otherwise.
func FaultCount(short, long int) int {
	if LongFaults {
		return long
	}
	return short
}

// Patience is the timeout of every wait for an event. It is far longer than any takes.
var Patience = time.Duration(FaultCount(3, 4)) * time.Minute
