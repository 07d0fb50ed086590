// Package simulation holds tests only: the real scheduler, runner, leases and
// heartbeats of several worker processes over the store in memory, in fake time,
// with everything that happens, faults included, decided by one seed.
package simulation
