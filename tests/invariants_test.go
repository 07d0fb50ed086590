package tests_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

// checkInvariants reports every broken promise, as an operator would find it.
// Processes have ended by then: clean-ups run last in, first out.
func (h *house) checkInvariants() {
	h.t.Helper()
	for _, broken := range h.brokenPromises("--at-rest") {
		h.t.Errorf("broken: %s", broken)
	}
	if h.model == nil {
		return
	}
	if faults := h.model.Violations(); len(faults) > 0 {
		h.t.Errorf("a strict model server refused requests: %v", faults)
	}
}

// brokenPromises is what "turnctl check" finds.
func (h *house) brokenPromises(flags ...string) (broken []string) {
	h.t.Helper()
	r := h.run("", "turnctl", append([]string{"-o", "json", "check"}, flags...)...)
	var promises []struct {
		Promise string   `json:"promise"`
		Broken  []string `json:"broken"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &promises); err != nil || len(promises) == 0 {
		return []string{fmt.Sprintf("turnctl check ended with %d, %v\n%s%s", r.code, err, r.stdout, r.stderr)}
	}
	for _, p := range promises {
		if len(p.Broken) > 0 {
			broken = append(broken, p.Promise+": "+strings.Join(p.Broken, ", "))
		}
	}
	return broken
}
