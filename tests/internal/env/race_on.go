//go:build race

package env

// RaceDetector says that the tests run with the race detector; the programs
// are then built with it as well.
const RaceDetector = true

// TakeoverAfter is after how long a worker's turns are taken over, where a test waits for that.
// Of the programs of this build, live ones have been silent for 3.5 s on two busy cores.
const TakeoverAfter = "5s"
