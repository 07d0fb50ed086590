package testrun

import (
	"os"
	"testing"
)

// TierVariable is the environment variable with the test tier, which decides how many cases the
// tests with many cases run. Empty is make test, "full" is CI, "long" is make crash and make
// faults, and "mutants" is make mutants.
const TierVariable = "TURNKEEPER_TESTS"

// Full reports whether the tier runs every case.
func Full() bool { tier := os.Getenv(TierVariable); return tier == "full" || tier == "long" }

// Long reports whether tests may take minutes each.
func Long() bool { return os.Getenv(TierVariable) == "long" }

// Sample returns all cases in CI, n evenly spread cases in make test, and one with -short. Similar
// cases should be next to each other.
func Sample[T any](cases []T, n int) []T {
	if testing.Short() {
		n = 1
	}
	if Full() || n >= len(cases) {
		return cases
	}
	some := make([]T, 0, n)
	for i := range n {
		some = append(some, cases[i*len(cases)/n])
	}
	return some
}

// Count returns few in make test, and many in CI.
func Count(few, many int) int {
	if Full() {
		return many
	}
	return few
}

// UnderRace returns few with the race detector, and all without it. It is for tests that make seeds runs without it in CI: they are about
// order or amounts, not about memory that goroutines share, and the race detector makes them three to ten times as slow.
func UnderRace(few, all int) int {
	if RaceDetector {
		return few
	}
	return all
}

// OnlyFull skips a test outside of CI.
func OnlyFull(t testing.TB) {
	t.Helper()
	if !Full() {
		t.Skip("runs with " + TierVariable + "=full, as in CI")
	}
}

// Slow skips a test with -short, because it takes about a second or is one of many similar tests.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

// Guard skips a test with -short, like Slow. But make mutants runs the test, because it shows that
// each condition of a guard is needed.
func Guard(t testing.TB) {
	t.Helper()
	if os.Getenv(TierVariable) != "mutants" {
		Slow(t)
	}
}
