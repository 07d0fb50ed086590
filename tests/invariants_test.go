package tests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// byTheClock are the promises that the stamps of a clock show only while nobody
// sets it.
var byTheClock = []string{
	"the grants of a lane do not overlap",
	"a call was started under the grant that held its turn then",
}

// checkInvariants reports every broken promise, as an operator would find it.
// Processes have ended by then: clean-ups run last in, first out.
func (h *house) checkInvariants() {
	h.t.Helper()
	for _, p := range h.brokenPromises("--at-rest") {
		if !h.stepped || !slices.Contains(byTheClock, p.Promise) {
			h.t.Errorf("broken: %s: %s", p.Promise, strings.Join(p.Broken, ", "))
		}
	}
	if h.stepped {
		var lanes string
		err := h.db.QueryRow(context.Background(), "select coalesce(string_agg(lane || ' ' || token, ', '), '') from regrants").Scan(&lanes)
		if err != nil || lanes != "" {
			h.t.Errorf("granted while they were held: %s, %v", lanes, err)
		}
	}
	if h.model == nil {
		return
	}
	if faults := h.model.Violations(); len(faults) > 0 {
		h.t.Errorf("a strict model server refused requests: %v", faults)
	}
}

// A brokenPromise is one that "turnctl check" found to be broken, and where.
type brokenPromise struct {
	Promise string   `json:"promise"`
	Broken  []string `json:"broken"`
}

func (h *house) brokenPromises(flags ...string) []brokenPromise {
	h.t.Helper()
	h.env["DATABASE_URL"] = h.url // no proxy is between
	r := h.run("", "turnctl", append([]string{"-o", "json", "check"}, flags...)...)
	var all []brokenPromise
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil || len(all) == 0 {
		return []brokenPromise{{"turnctl check works", []string{fmt.Sprintf("it ended with %d, %v\n%s%s", r.code, err, r.stdout, r.stderr)}}}
	}
	return slices.DeleteFunc(all, func(p brokenPromise) bool { return len(p.Broken) == 0 })
}
