package tests_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"turnkeeper/tests/faultpoint"
)

// A stand waits for a program at one of its points: the program stays there
// until the test lets it go, the first time that it comes by.
type stand struct {
	t      testing.TB
	point  string
	server *httptest.Server
	visits chan *visit
	once   sync.Once
}

// A visit is a program that stands at the point.
type visit struct {
	answer chan int
	over   chan struct{} // closed when the program has its answer, or is gone
}

func newStand(t testing.TB, point string) *stand {
	s := &stand{t: t, point: point, visits: make(chan *visit, 1)}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// environment is what makes a program ask this stand.
func (s *stand) environment() []string {
	return []string{faultpoint.URLVariable + "=" + s.server.URL, faultpoint.PointsVariable + "=" + s.point}
}

func (s *stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.once.Do(func() {
		v := &visit{answer: make(chan int, 1), over: make(chan struct{})}
		defer close(v.over)
		s.visits <- v
		select {
		case status := <-v.answer:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	})
}

// await returns when the program stands at the point.
func (s *stand) await() *visit {
	s.t.Helper()
	select {
	case v := <-s.visits:
		return v
	case <-time.After(patience):
		s.t.Fatalf("no program came by %s", s.point)
		return nil
	}
}

func (v *visit) pass()  { v.answer <- http.StatusOK }
func (v *visit) panic() { v.answer <- faultpoint.StatusPanic }
