package storesuite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

// A Pair opens two empty stores that should always do the same. Their names are for messages.
type Pair struct {
	Names [2]string
	Open  [2]func(t *testing.T) Store
}

// A step is one operation of a program. Its choices are random numbers: each selects among what there is when the
// operation is done, so a program stays valid if steps are left out.
type step struct {
	op      *operation
	choices [24]uint32
}

// A side is one of the stores of a pair while a program runs.
type side struct {
	*env
	*facts
	choices []uint32
	step    int      // number of the current step
	tags    int      // things that the current step has written
	did     []string // what it did

	held       []*dispatch // newest first; some have lost their grants
	jobs, last []Job
	claims     []turnlog.ClaimedCall // newest first
	parts      []string              // hashes of request parts
	grants     int                   // ids that a worker has made
	apart      map[string]bool       // agents with a lane for each conversation
	retired    map[string]bool
}

func newSide(t *testing.T, s Store) *side {
	c := &side{env: &env{s, t}, facts: newFacts(), apart: map[string]bool{"desk": true, "few": true},
		retired: map[string]bool{}}
	for _, agent := range pairAgents {
		c.registerPair(agent)
	}
	return c
}

// choose returns the step's next choice, from 0 to n-1.
func (c *side) choose(n int) int {
	if len(c.choices) == 0 || n <= 1 {
		return 0
	}
	next := c.choices[0]
	c.choices = c.choices[1:]
	return int(next) % n
}

func pick[T any](c *side, from ...T) T { return from[c.choose(len(from))] }

// says adds what a step did, and what it returned.
func (c *side) says(format string, args ...any) { c.did = append(c.did, fmt.Sprintf(format, args...)) }

// meanings are the errors that have a meaning for callers.
var meanings = []error{
	turnkeeper.ErrEmptyMessage, turnkeeper.ErrInvalidMessage, turnkeeper.ErrUnknownAgent, turnkeeper.ErrAgentRetired,
	turnkeeper.ErrKeyConflict,
	turnkeeper.ErrNotFound, turnkeeper.ErrFenced, turnkeeper.ErrJournalMoved, turnkeeper.ErrWrongState,
	turnkeeper.ErrBadMove,
	asks.ErrClosed, asks.ErrInvalid, asks.ErrNotApproved,
}

// outcome returns what an error means.
func (f *facts) outcome(err error) string {
	if err == nil {
		return "ok"
	}
	for _, refusal := range meanings {
		if errors.Is(err, refusal) {
			return refusal.Error()
		}
	}
	f.raw = append(f.raw, err.Error())
	return "another error"
}

// clock reads the store's clock.
func (c *side) clock() {
	err := c.Scheduler().InTick(c.Context(), func(t scheduler.Tick) error {
		sit, _, err := t.Snapshot(c.Context(), false)
		c.now = sit.Now
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
}

// do does a step, and returns what can be compared of it.
func (c *side) do(n int, s step) []fact {
	c.step, c.tags, c.choices, c.did = n, 0, s.choices[:], nil
	c.begin()
	c.clock()
	s.op.do(c)
	for i, line := range c.did {
		c.put(fmt.Sprintf("what step %d did, %d", n, i), line, 0)
	}
	return c.all
}

// A trial is one run of a program.
type trial struct {
	steps []step // that did something, up to the one after which the stores differed
	did   []string
	wrong string // how they differed; empty: they did not

	slowest time.Duration // of what was done or read at once
}

// timed does something, and notes how long it took.
func (r *trial) timed(do func()) {
	began := time.Now()
	do()
	r.slowest = max(r.slowest, time.Since(began))
}

// run runs a program on two new stores.
func (p Pair) run(t *testing.T, program []step) (r trial) {
	var sides [2]*side
	for i, open := range p.Open {
		sides[i] = newSide(t, open(t))
	}
	defer func() {
		if r.wrong == "" && t.Failed() {
			r.wrong = "the test failed"
		}
	}()
	for n, s := range program {
		var got [2][]fact
		for i, c := range sides {
			r.timed(func() { got[i] = c.do(n, s) })
		}
		if len(got[0])+len(got[1]) == 0 {
			continue
		}
		r.steps = append(r.steps, s)
		r.did = append(r.did, fmt.Sprintf("%2d. %s: %s", len(r.steps), s.op.name, strings.Join(sides[0].did, "; ")))
		for i, c := range sides {
			if len(c.raw) > 0 {
				r.did = append(r.did, fmt.Sprintf("    (%s: %s)", p.Names[i], strings.Join(c.raw, "; ")))
			}
		}
		if r.wrong = difference(p.Names, got[0], got[1], r.slowest); r.wrong == "" {
			r.wrong = p.compare(&r, sides, false)
		}
		if r.wrong != "" {
			return r
		}
	}
	for _, c := range sides { // nothing stays with a worker that is lost
		tickOnceOp(c)
		tickOnceOp(c)
	}
	r.wrong = p.compare(&r, sides, true)
	return r
}

// compare returns how what can be read from the stores differs.
func (p Pair) compare(r *trial, sides [2]*side, everything bool) string {
	for _, c := range sides {
		c.begin()
		c.clock()
		r.timed(func() { c.read(everything) })
	}
	return difference(p.Names, sides[0].all, sides[1].all, r.slowest)
}

// programOf returns a random program.
func programOf(seed uint64, steps int) (all []step) {
	r := rand.New(rand.NewPCG(seed, 37)) //nolint:gosec // not for secrets
	for n := range steps {
		s := step{op: drawn(r)}
		// else the first steps do nothing
		if begin := []string{"enqueue", "enqueue", "enqueue", "serve"}; n < len(begin) {
			s.op = operationOf(begin[n])
		}
		for i := range s.choices {
			s.choices[i] = r.Uint32N(1 << 16)
		}
		all = append(all, s)
	}
	return all
}

func operationOf(name string) *operation {
	for _, o := range operations() {
		if o.name == name {
			return &o
		}
	}
	return nil
}

func drawn(r *rand.Rand) *operation {
	total, operations := 0, operations()
	for _, o := range operations {
		total += o.weight
	}
	n := r.IntN(total)
	for i := range operations {
		if n -= operations[i].weight; n < 0 {
			return &operations[i]
		}
	}
	return nil
}

// Compare runs a random program on both stores. If they differ, it reports a program after which they do, as short as
// it finds one in shrinkTime.
func (p Pair) Compare(t *testing.T, seed uint64, steps int) {
	p.program(t, fmt.Sprint("seed ", seed), programOf(seed, steps))
}

// Batch does the same to as many turns at once: it sends and grants them, writes a round to each, and ends them.
func (p Pair) Batch(t *testing.T, turns int) {
	var program []step
	for _, name := range []string{"enqueue many", "serve", "serve", "write many"} {
		program = append(program, step{op: operationOf(name),
			choices: [24]uint32{uint32(max(0, slices.Index(batches, turns)))}}) //nolint:gosec // few
	}
	p.program(t, fmt.Sprint(turns, " turns"), program)
}

func (p Pair) program(t *testing.T, name string, program []step) {
	var r trial
	for range 4 { // a program that takes too long proves nothing: see passTimeOp
		began := time.Now()
		if r = p.try(t, program); r.wrong == "" || time.Since(began) < soonest {
			break
		}
		t.Logf("the stores differ after a program that took %v; running it again", time.Since(began))
	}
	if r.wrong == "" {
		t.Log(strings.Join(r.did, "\n"))
		return
	}
	r = p.shrink(t, r)
	t.Errorf("%s: after\n%s\nthe stores differ:\n%s", name, strings.Join(r.did, "\n"), r.wrong)
}

// try runs a program in a test of its own.
func (p Pair) try(t *testing.T, program []step) (r trial) {
	t.Run("program", func(t *testing.T) { r = p.run(t, program) })
	return r
}

const shrinkTime = 30 * time.Second

// soonest is more than a program may take: after it, a time has come in the database that is to come later for the
// store in memory. See sendOp and passTimeOp.
const soonest = 20 * time.Second

// shrink leaves out steps of a program that went wrong, in blocks of half of it and less, while it still goes wrong.
func (p Pair) shrink(t *testing.T, r trial) trial {
	began := time.Now()
	for size := (len(r.steps) + 1) / 2; size > 0; {
		smaller := false
		for at := len(r.steps) - size; at > -size && time.Since(began) < shrinkTime; at -= size {
			from := max(at, 0)
			shorter := slices.Delete(slices.Clone(r.steps), from, min(from+size, len(r.steps)))
			if again := p.try(t, shorter); again.wrong != "" {
				r, smaller = again, true
				at = min(at, len(r.steps))
			}
		}
		if size == 1 && (!smaller || time.Since(began) >= shrinkTime) {
			break
		}
		size = max(size/2, 1)
	}
	return r
}
