//go:build !race

package testrun

// RaceDetector reports whether the tests have the race detector.
const RaceDetector = false
