package env

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// clockInvariants are the invariants whose check needs a clock that is not set.
var clockInvariants = []string{
	"the grants of a lane do not overlap",
	"every call was started under the grant that its turn had at that time",
}

// CheckInvariants fails the test for every invariant that "turnctl check" finds broken. It runs after
// all processes have ended, because cleanups run in reverse order.
func (e *Env) CheckInvariants() {
	e.T.Helper()
	for _, p := range e.BrokenInvariants("--at-rest") {
		if !e.ClockStepped || !slices.Contains(clockInvariants, p.Promise) {
			e.T.Errorf("broken: %s: %s", p.Promise, strings.Join(p.Broken, ", "))
		}
	}
	if e.ClockStepped {
		var lanes string
		err := e.DB.QueryRow(context.Background(),
			"select coalesce(string_agg(lane || ' ' || token, ', '), '') from regrants").Scan(&lanes)
		if err != nil || lanes != "" {
			e.T.Errorf("lanes granted while they were held: %s, %v", lanes, err)
		}
	}
	if e.Model == nil {
		return
	}
	if faults := e.Model.Violations(); len(faults) > 0 {
		e.T.Errorf("the strict model server refused requests: %v", faults)
	}
}

// A BrokenInvariant is an invariant that "turnctl check" found broken, and where.
type BrokenInvariant struct {
	Promise string   `json:"promise"`
	Broken  []string `json:"broken"`
}

// BrokenInvariants runs "turnctl check" and returns what it finds.
func (e *Env) BrokenInvariants(flags ...string) []BrokenInvariant {
	e.T.Helper()
	e.Vars["DATABASE_URL"] = e.DatabaseURL // not through a proxy
	r := e.inProcess("", "turnctl", append([]string{"-o", "json", "check"}, flags...)...)
	var all []BrokenInvariant
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || len(all) == 0 {
		return []BrokenInvariant{{"turnctl check works", []string{fmt.Sprintf("it ended with %d, %v\n%s%s", r.Code, err,
			r.Stdout, r.Stderr)}}}
	}
	return slices.DeleteFunc(all, func(p BrokenInvariant) bool { return len(p.Broken) == 0 })
}
