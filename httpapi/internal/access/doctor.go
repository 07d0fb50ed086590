package access

import (
	"context"
	"time"

	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/diagnosis"
)

// reportFor is how long a report of doctor is shown before the checks run again: they read much, and try a write.
const reportFor = 15 * time.Second

// A doctor runs the checks for all who ask, one after the other.
type doctor struct {
	settings diagnosis.Settings // of this process
	place    chan struct{}      // held by who runs them
	newest   diagnosis.Report
}

func newDoctor(settings diagnosis.Settings) *doctor {
	return &doctor{settings: settings, place: make(chan struct{}, 1)}
}

// report returns the newest report, the worst findings first. It runs the checks if that is older than reportFor.
func (d *doctor) report(ctx context.Context, store diagnosis.Store) (diagnosis.Report, error) {
	select {
	case d.place <- struct{}{}:
	case <-ctx.Done():
		return diagnosis.Report{}, context.Cause(ctx)
	}
	defer func() { <-d.place }()
	if time.Since(d.newest.At) < reportFor {
		return d.newest, nil
	}
	var made diagnosis.Report
	diagnosis.Examine(ctx, &made, d.settings, store)
	if ctx.Err() != nil { // what is left did not run
		return diagnosis.Report{}, context.Cause(ctx)
	}
	made.Sort()
	d.newest = made
	return made, nil
}

// Diagnosis returns what doctor finds in the database, the worst first, at most reportFor ago. A caller who does not
// see all agents gets the findings about those that it sees, and which checks could not run.
func (a Access) Diagnosis(c *request.Call) (diagnosis.Report, error) {
	all, err := a.doctor.report(c.Context(), a.store)
	if err != nil || c.Caller.SeesAll() {
		return all, err
	}
	return all.For(c.Caller.Sees), nil
}
