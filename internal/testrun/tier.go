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

// All reports whether tests with many cases run every case: in CI, but not with the race detector. With it, a case
// costs two to ten times as much, and few of them find the races that all can find. CI runs these tests twice: some
// cases with the race detector, and all without it (make cases).
func All() bool { return Full() && !RaceDetector }

// Long reports whether tests may take minutes each.
func Long() bool { return os.Getenv(TierVariable) == "long" }

// Sample returns all cases if All is true, n evenly spread cases otherwise, and one with -short. Similar
// cases should be next to each other.
func Sample[T any](cases []T, n int) []T {
	if testing.Short() {
		n = 1
	}
	if All() || n >= len(cases) {
		return cases
	}
	some := make([]T, 0, n)
	for i := range n {
		some = append(some, cases[i*len(cases)/n])
	}
	return some
}

// Count returns many if All is true, and few otherwise.
func Count(few, many int) int {
	if All() {
		return many
	}
	return few
}

// UnderRace returns few with the race detector, and all without it. It is for tests that make cases runs without it in
// CI: they are about order or amounts, not about memory that goroutines share, and the race detector makes them three
// to ten times as slow.
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
