package simulation_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/memory"
)

// An env is one simulated installation: a database, worker processes, clients and faults.
type env struct {
	t           *testing.T
	seed        uint64
	profile     profile
	mutation    mutation
	store       *memory.Store
	began       time.Time
	simulated   time.Duration // length of the run
	withProcess time.Duration // part of it with a process alive

	mu             sync.Mutex
	skew           time.Duration // error of the database's clock
	databaseBackAt time.Time     // the database is unavailable until then
	powerAt        time.Time     // no process starts until then
	up             int           // number of processes alive
	since          time.Time     // when the first of them started
	quiet          bool          // no more faults happen
	over           bool          // the run has ended, and processes stop
	processes      []*process    // alive and dead
	doorbells      *actor
	trace          trace
	ledger         ledger
	signer         inferencetest.Signer // of the model's reasoning
	found          []string             // broken invariants
	visited        map[string]int       // fault points
}

func newEnv(t *testing.T, seed uint64, m mutation) *env {
	e := &env{t: t, seed: seed, mutation: m, began: time.Now()}
	e.ledger, e.visited = newLedger(), map[string]int{}
	e.profile = e.newProfile()
	if m.name != "" { // its seed was found without labels
		e.profile.labels = false
	}
	if m.adjust != nil {
		m.adjust(&e.profile)
	}
	e.doorbells = e.actor(nil, kindDoorbells)
	e.store = memory.New(memory.Options{Now: e.databaseNow, LeaseTTL: patient().LeaseTTL, Ring: e.ring})
	e.store.Plant(t, m.bugs...)
	return e
}

// patient returns the default bounds, except that no message is given up.
func patient() turnkeeper.Bounds {
	b := bounds.Default()
	b.GiveUpAfter = giveUpAfter
	return b
}

func (e *env) databaseNow() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Add(e.skew)
}

// note adds a step to the trace.
func (e *env) note(p *process, what, how string, a, b int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	if p != nil {
		n = p.n
	}
	e.trace.add(step{time.Since(e.began), n, what, how, a, b})
}

// report records a broken invariant.
func (e *env) report(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.found = append(e.found, fmt.Sprintf(format, args...))
}

func (e *env) isQuiet() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.quiet
}

// visit counts a visit of a fault point and reports whether faults happen now.
func (e *env) visit(label string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.quiet {
		e.visited[label]++
	}
	return !e.quiet
}

func (e *env) databaseDown() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.databaseBackAt)
}

// alive returns the running processes in the order of their start.
func (e *env) alive() []*process {
	e.mu.Lock()
	defer e.mu.Unlock()
	var alive []*process
	for _, p := range e.processes {
		if !p.dead {
			alive = append(alive, p)
		}
	}
	return alive
}

// ring sends a doorbell to every process: in time, late, twice or not at all.
func (e *env) ring(b memory.Bell) {
	for _, p := range e.alive() {
		e.mu.Lock()
		times, quiet := 1, e.quiet
		switch {
		case !quiet && e.doorbells.chance(e.profile.doorbellsLost):
			times = 0
		case !quiet && e.doorbells.chance(e.profile.doorbellsTwice):
			times = 2
		}
		var waits []time.Duration
		for range times {
			wait := e.doorbells.between(100*time.Microsecond, 5*time.Millisecond)
			if !quiet && e.doorbells.chance(0.05) {
				wait = e.doorbells.between(0, 20*time.Second)
			}
			waits = append(waits, wait)
		}
		e.mu.Unlock()
		for _, wait := range waits {
			time.AfterFunc(wait, func() { p.receive(b) })
		}
	}
}

// count changes the number of processes alive and adds up the time with at least one. The caller holds the lock.
func (e *env) count(change int) {
	if e.up == 0 {
		e.since = time.Now()
	}
	if e.up += change; e.up == 0 {
		e.withProcess += time.Since(e.since)
	}
}
