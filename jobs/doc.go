// Package jobs connects storage and River. What must become true together shares one
// transaction here: a grant's turn and its job, and the end of a turn and of its job.
//
// A River job is only a doorbell: it carries ids, there is one for each grant, it has
// one attempt, and nothing depends on its state. The package implements the scheduler's
// Store, the turn's Journal, and River's workers.
package jobs
