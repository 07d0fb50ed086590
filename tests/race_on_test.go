//go:build race

package tests_test

// raceDetector says that the tests run with the race detector; the programs
// are then built with it as well.
const raceDetector = true
