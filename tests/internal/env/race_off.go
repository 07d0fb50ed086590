//go:build !race

package env

// RaceDetector says that the tests run with the race detector; the programs
// are then built with it as well.
const RaceDetector = false

// TakeoverAfter is after how long a worker's turns are taken over, where a test waits for that.
const TakeoverAfter = "2s"
