package tests_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// A mark is one run of a marker tool.
type mark struct {
	Tool           string `json:"tool"`
	Label          string `json:"label"`
	Turn           int64  `json:"turn"`
	Call           string `json:"call"`
	IdempotencyKey string `json:"idempotency_key"`
	PID            int    `json:"pid"`

	Started bool `json:"-"` // its start was on record when it ran
}

// A ledger counts runs of marker tools outside of the product. Its answer, the
// tool's result, is "marked LABEL"; while labels are held it comes later.
type ledger struct {
	t       testing.TB
	url     string
	mu      sync.Mutex
	marks   []mark
	held    map[string]chan struct{} // by label
	answers map[string]string        // by label, in place of "marked LABEL"
	witness func(mark) bool          // says whether a run's start is on record
	more    chan struct{}            // closed and replaced at each mark
}

func newLedger(t testing.TB) *ledger {
	l := &ledger{t: t, held: map[string]chan struct{}{}, answers: map[string]string{}, more: make(chan struct{})}
	server := httptest.NewServer(l)
	l.url = server.URL
	t.Cleanup(func() {
		l.release()
		server.CloseClientConnections()
		server.Close()
	})
	return l
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m mark
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodGet { // it only asks
		l.lookUp(w, m)
		return
	}
	if l.witness != nil {
		m.Started = l.witness(m)
	}
	held, answer := l.note(m)
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	_, _ = fmt.Fprint(w, answer)
}

// lookUp says whether a call has made its mark.
func (l *ledger) lookUp(w http.ResponseWriter, m mark) {
	for _, made := range l.all() {
		if made.IdempotencyKey == m.IdempotencyKey {
			_, _ = fmt.Fprint(w, "marked "+made.Label)
			return
		}
	}
	http.NotFound(w, nil)
}

func (l *ledger) note(m mark) (held <-chan struct{}, answer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks = append(l.marks, m)
	close(l.more)
	l.more = make(chan struct{})
	if answer = l.answers[m.Label]; answer == "" {
		answer = "marked " + m.Label
	}
	return l.held[m.Label], answer
}

// hold keeps back the answers to marks of the label until release.
func (l *ledger) hold(label string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[label] = make(chan struct{})
}

// answer sets what marks of the label are answered with.
func (l *ledger) answer(label, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[label] = text
}

// release lets all answers go, and later ones too.
func (l *ledger) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for label, held := range l.held {
		close(held)
		delete(l.held, label)
	}
}

// all are the marks so far.
func (l *ledger) all() []mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.marks)
}

// runs are the marks of a label so far.
func (l *ledger) runs(label string) []mark {
	runs, _ := l.read(label)
	return runs
}

func (l *ledger) read(label string) ([]mark, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.marks), func(m mark) bool { return m.Label != label }), l.more
}

// await returns when the label was marked n times.
func (l *ledger) await(label string, n int) []mark {
	l.t.Helper()
	over := time.After(patience)
	for {
		runs, more := l.read(label)
		if len(runs) >= n {
			return runs
		}
		select {
		case <-more:
		case <-over:
			l.t.Fatalf("%d marks of %q came, %d were expected", len(runs), label, n)
		}
	}
}

// ran fails the test if the label was not marked exactly n times.
func (l *ledger) ran(label string, n int) {
	l.t.Helper()
	if runs := l.runs(label); len(runs) != n {
		l.t.Errorf("%q was marked %d times, not %d: %+v", label, len(runs), n, runs)
	}
}
