// Package env is the environment of the black-box tests. It builds the programs and
// runs them as processes against a real Postgres, a scripted model server and a ledger
// that counts what tools did.
//
// A test makes an Env with New. The Env has its own database and folder, and at the end
// of the test every invariant is checked (Env.CheckInvariants). The test packages
// beside this one share nothing else, so that go test runs and caches each by itself.
// Each of them calls Main from its TestMain.
package env

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"turnkeeper/storage/storagetest"
)

// atOnce is how many tests of a package run at the same time. They wait for leases, heartbeats and
// model servers most of the time.
const atOnce = "8"

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
	return flag.Set("test.parallel", atOnce)
}
