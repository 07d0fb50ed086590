// Package jobs is the one room where a storage transaction and River meet:
// three facts that must become true together (message claimed, turn made, job
// inserted; fence held, reply written, job completed) share one transaction
// here.
//
// A River job is a doorbell: it carries ids only, there is one for each grant,
// it is attempted once, and nothing depends on its state. The package gives the
// scheduler its Store, the turn its Journal, and River its worker.
package jobs
