package env

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"turnkeeper/storage/operate"
)

// clockInvariants are the invariants whose check needs a clock that is not set.
var clockInvariants = []string{
	"the grants of a lane do not overlap",
	"every call was started under the grant that its turn had at that time",
}

// CheckInvariants fails the test for every invariant that "turnctl check --at-rest" finds broken. It runs after
// all processes have ended, because cleanups run in reverse order.
func (e *Env) CheckInvariants() {
	e.T.Helper()
	for _, p := range e.BrokenInvariants(true) {
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

// BrokenInvariants returns what "turnctl check" finds broken; with atRest, "turnctl check --at-rest".
func (e *Env) BrokenInvariants(atRest bool) []BrokenInvariant {
	e.T.Helper()
	var all []BrokenInvariant
	var err error
	if e.store != nil {
		var promises []operate.Promise
		promises, err = e.store.check(context.Background(), atRest)
		for _, p := range promises {
			all = append(all, BrokenInvariant{p.Text, p.Broken})
		}
	} else {
		all, err = checkByProgram(e, atRest)
	}
	if err != nil || len(all) == 0 {
		return []BrokenInvariant{{"the check works", []string{fmt.Sprintf("%d promises, %v", len(all), err)}}}
	}
	return slices.DeleteFunc(all, func(p BrokenInvariant) bool { return len(p.Broken) == 0 })
}

// checkByProgram runs "turnctl check".
func checkByProgram(e *Env, atRest bool) (all []BrokenInvariant, err error) {
	e.T.Helper()
	e.Vars["DATABASE_URL"] = e.DatabaseURL
	r := e.Turnctl("-o", "json", "check", fmt.Sprintf("--at-rest=%t", atRest))
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		return nil, fmt.Errorf("turnctl check ended with %d, %w\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	return all, nil
}
