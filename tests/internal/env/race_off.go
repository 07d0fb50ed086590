//go:build !race

package env

// RaceDetector says that the tests run with the race detector; the programs
// are then built with it as well.
const RaceDetector = false
