//go:build !race

package tests_test

// raceDetector says that the tests run with the race detector; the programs
// are then built with it as well.
const raceDetector = false

// silence is after how long a worker's turns are taken over, where a test waits for that.
const silence = "2s"
