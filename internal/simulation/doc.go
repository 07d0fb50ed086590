// Package simulation holds tests only. They run the real scheduler, runner, leases and
// heartbeats of several worker processes over the store in memory, in fake time. One seed
// decides everything that happens, faults included.
package simulation
