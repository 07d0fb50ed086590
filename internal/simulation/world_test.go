package simulation_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/memory"
)

// A world is one simulated installation: a database, processes, clients, and
// whatever goes wrong.
type world struct {
	t       *testing.T
	seed    uint64
	profile profile
	plant   plant
	store   *memory.Store
	began   time.Time
	lived   time.Duration // how long the run was
	awake   time.Duration // how much of it with a process alive

	mu        sync.Mutex
	skew      time.Duration // of the database's clock
	away      time.Time     // the database is away until then
	dark      time.Time     // nobody starts a process until then
	up        int           // processes alive
	since     time.Time     // when there last were none
	calm      bool          // nothing goes wrong any more
	over      bool          // the run is over: whoever is left ends
	processes []*process    // all there ever were
	bells     *actor
	trace     trace
	ledger    ledger
	found     []string       // what may not be, as it happened
	visited   map[string]int // points at which something could go wrong
}

func newWorld(t *testing.T, seed uint64, plant plant) *world {
	w := &world{t: t, seed: seed, plant: plant, began: time.Now()}
	w.ledger, w.visited = newLedger(), map[string]int{}
	w.profile = w.newProfile()
	if plant.tilt != nil {
		plant.tilt(&w.profile)
	}
	w.bells = w.actor(nil, kindBells)
	w.store = memory.New(memory.Options{Now: w.databaseNow, LeaseTTL: bounds().LeaseTTL, Ring: w.ring})
	w.store.Plant(t, plant.bugs...)
	return w
}

// bounds are those of every turn: the ones that are shipped.
func bounds() turnkeeper.Bounds {
	b := turnkeeper.DefaultBounds()
	b.GiveUpAfter = givenUp
	return b
}

func (w *world) databaseNow() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.skew)
}

// note adds to the trace.
func (w *world) note(p *process, what, how string, a, b int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	if p != nil {
		n = p.n
	}
	w.trace.add(step{time.Since(w.began), n, what, how, a, b})
}

// violated keeps what may not be.
func (w *world) violated(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// mayFail notes that somebody stands at a point, and says whether things go
// wrong.
func (w *world) mayFail(label string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.calm {
		w.visited[label]++
	}
	return !w.calm
}

func (w *world) isAway() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.away)
}

// alive are the processes that run, in the order they came up.
func (w *world) alive() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	var alive []*process
	for _, p := range w.processes {
		if !p.dead {
			alive = append(alive, p)
		}
	}
	return alive
}

// ring carries a doorbell to every process: in time, late, twice or not at all.
func (w *world) ring(b memory.Bell) {
	for _, p := range w.alive() {
		w.mu.Lock()
		times, calm := 1, w.calm
		switch {
		case !calm && w.bells.chance(w.profile.bellsLost):
			times = 0
		case !calm && w.bells.chance(w.profile.bellsTwice):
			times = 2
		}
		var waits []time.Duration
		for range times {
			wait := w.bells.between(100*time.Microsecond, 5*time.Millisecond)
			if !calm && w.bells.chance(0.05) {
				wait = w.bells.between(0, 20*time.Second)
			}
			waits = append(waits, wait)
		}
		w.mu.Unlock()
		for _, wait := range waits {
			time.AfterFunc(wait, func() { p.hear(b) })
		}
	}
}

// count keeps how long there is a process alive. The caller has the lock.
func (w *world) count(change int) {
	if w.up == 0 {
		w.since = time.Now()
	}
	if w.up += change; w.up == 0 {
		w.awake += time.Since(w.since)
	}
}
