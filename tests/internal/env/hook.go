package env

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"turnkeeper/tests/internal/faultpoint"
)

// A HookServer pauses a program the first time that it reaches a fault point, until the
// test resumes it.
type HookServer struct {
	t      testing.TB
	point  string
	server *httptest.Server
	pauses chan *Pause
	once   sync.Once
}

// A Pause is a program that waits at the fault point.
type Pause struct {
	answer chan int
	over   chan struct{} // closed when the program has its answer, or is gone
}

// NewHookServer starts a server for a fault point. It is closed when the test ends.
func NewHookServer(t testing.TB, point string) *HookServer {
	s := &HookServer{t: t, point: point, pauses: make(chan *Pause, 1)}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// Environ returns the variables that make a program call this server.
func (s *HookServer) Environ() []string {
	return []string{faultpoint.URLVariable + "=" + s.server.URL, faultpoint.PointsVariable + "=" + s.point}
}

func (s *HookServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.once.Do(func() {
		p := &Pause{answer: make(chan int, 1), over: make(chan struct{})}
		defer close(p.over)
		s.pauses <- p
		select {
		case status := <-p.answer:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	})
}

// Await waits until a program is paused at the point.
func (s *HookServer) Await() *Pause {
	s.t.Helper()
	select {
	case p := <-s.pauses:
		return p
	case <-time.After(Patience):
		s.t.Fatalf("no program came by %s", s.point)
		return nil
	}
}

// Resume lets the program go on.
func (p *Pause) Resume() { p.answer <- http.StatusOK }

// Panic makes the program panic at the point.
func (p *Pause) Panic() { p.answer <- faultpoint.StatusPanic }
