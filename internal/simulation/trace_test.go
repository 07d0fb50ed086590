package simulation_test

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"
)

// A step is one event of a simulation.
type step struct {
	at      time.Duration // since the start of the simulation
	process int           // 0: none
	what    string
	how     string
	a, b    int64
}

// A trace keeps the last steps of a run, and a checksum of all steps.
type trace struct {
	steps []step
	next  int // index of the oldest step, once steps is full
	total int
	sum   uint64
	all   []step // nil: only the last steps are kept
	keep  bool
}

const tracedSteps = 250

var traceSeed = maphash.MakeSeed()

func (t *trace) add(s step) {
	t.total++
	t.sum = t.sum*31 + maphash.Comparable(traceSeed, s)
	if t.keep {
		t.all = append(t.all, s)
	}
	if len(t.steps) < tracedSteps {
		t.steps = append(t.steps, s)
		return
	}
	t.steps[t.next] = s
	t.next = (t.next + 1) % tracedSteps
}

func (t *trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the last of %d steps:\n", t.total)
	for i := range t.steps {
		b.WriteString(t.steps[(t.next+i)%len(t.steps)].String())
	}
	return b.String()
}

func (s step) String() string {
	return fmt.Sprintf("%14s  p%-3d %-16s %-12s %d %d\n", s.at.Round(time.Microsecond), s.process, s.what,
		s.how, s.a, s.b)
}
