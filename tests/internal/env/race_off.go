//go:build !race

package env

// RaceDetector reports whether the tests and the programs have the race detector.
const RaceDetector = false
