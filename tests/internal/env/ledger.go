package env

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// A Mark is one run of a marker tool.
type Mark struct {
	Tool           string `json:"tool"`
	Label          string `json:"label"`
	Turn           int64  `json:"turn"`
	Call           string `json:"call"`
	IdempotencyKey string `json:"idempotency_key"`
	PID            int    `json:"pid"`

	Started bool `json:"-"` // its start was committed when it ran
}

// A Ledger counts the runs of marker tools, outside of the product. It answers a run with
// "marked LABEL", which becomes the result of the tool. While a label is held, its answers are
// delayed.
type Ledger struct {
	t       testing.TB
	URL     string
	mu      sync.Mutex
	marks   []Mark
	held    map[string]chan struct{} // by label
	answers map[string]string        // by label, in place of "marked LABEL"
	failing map[string]bool          // labels whose runs fail
	order   []string                 // "begin LABEL" and "end LABEL", in order
	started func(Mark) bool          // reports whether the start of a run is committed; nil: not checked
	more    chan struct{}            // closed and replaced at each mark
}

// NewLedger starts a ledger, which is closed when the test ends.
func NewLedger(t testing.TB) *Ledger {
	l := &Ledger{t: t, held: map[string]chan struct{}{}, answers: map[string]string{}, failing: map[string]bool{},
		more: make(chan struct{})}
	l.URL = serve(t, l)
	t.Cleanup(l.Release)
	return l
}

func (l *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m Mark
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodGet { // Reconcile only asks
		l.lookUp(w, m)
		return
	}
	if l.started != nil {
		m.Started = l.started(m)
	}
	held, answer := l.begin(m)
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	if l.end(m.Label) {
		http.Error(w, answer, http.StatusConflict)
		return
	}
	_, _ = fmt.Fprint(w, answer)
}

// end records the end of a run, and reports whether the run fails.
func (l *Ledger) end(label string) (fails bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = append(l.order, "end "+label)
	return l.failing[label]
}

// lookUp answers with the mark of a call, or with 404.
func (l *Ledger) lookUp(w http.ResponseWriter, m Mark) {
	for _, made := range l.Marks() {
		if made.IdempotencyKey == m.IdempotencyKey {
			_, _ = fmt.Fprint(w, "marked "+made.Label)
			return
		}
	}
	http.NotFound(w, nil)
}

// begin records a mark and returns its answer. held is not nil if the label is held.
func (l *Ledger) begin(m Mark) (held <-chan struct{}, answer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks = append(l.marks, m)
	l.order = append(l.order, "begin "+m.Label)
	close(l.more)
	l.more = make(chan struct{})
	if answer = l.answers[m.Label]; answer == "" {
		answer = "marked " + m.Label
	}
	return l.held[m.Label], answer
}

// Hold delays the answers to marks of the label until Release.
func (l *Ledger) Hold(label string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[label] = make(chan struct{})
}

// SetAnswer sets the answer to marks of the label.
func (l *Ledger) SetAnswer(label, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[label] = text
}

// Fail makes the runs of the label fail with this text.
func (l *Ledger) Fail(label, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[label], l.failing[label] = text, true
}

// Order returns the begins and ends of runs, "begin LABEL" and "end LABEL", in order. A run whose worker
// closed the connection has no end.
func (l *Ledger) Order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.order)
}

// Release sends all delayed answers and ends every Hold.
func (l *Ledger) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for label, held := range l.held {
		close(held)
		delete(l.held, label)
	}
}

// Marks returns the marks so far.
func (l *Ledger) Marks() []Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.marks)
}

// Runs returns the marks of a label so far.
func (l *Ledger) Runs(label string) []Mark {
	runs, _ := l.read(label)
	return runs
}

func (l *Ledger) read(label string) ([]Mark, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.marks), func(m Mark) bool { return m.Label != label }), l.more
}

// Await waits until the label has n marks, and returns them.
func (l *Ledger) Await(label string, n int) []Mark {
	l.t.Helper()
	over := time.After(Patience)
	for {
		runs, more := l.read(label)
		if len(runs) >= n {
			return runs
		}
		select {
		case <-more:
		case <-over:
			l.t.Fatalf("timeout with %d marks of %q, want %d", len(runs), label, n)
		}
	}
}

// WantRuns fails the test unless the label has exactly n marks.
func (l *Ledger) WantRuns(label string, n int) {
	l.t.Helper()
	if runs := l.Runs(label); len(runs) != n {
		l.t.Errorf("%q has %d marks, want %d: %+v", label, len(runs), n, runs)
	}
}

// startIsCommitted reports whether the start of the mark's call is committed.
func (e *Env) startIsCommitted(m Mark) bool {
	is, err := TryQuery[bool](e,
		`select exists (select from call_starts where turn_id = $1 and 'round-' || round || '-tool-' || ordinal = $2)`,
		m.Turn, m.Call)
	return err == nil && is
}
