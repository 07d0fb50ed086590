package env

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"turnkeeper/tests/internal/faultpoint"
)

// A HookServer pauses a program when it first reaches a fault point, until the test resumes it.
type HookServer struct {
	t      testing.TB
	point  string
	url    string
	pauses chan *Pause
	once   sync.Once
}

// A Pause is a program waiting at the fault point.
type Pause struct {
	answer chan int
}

// NewHookServer starts a server for a fault point. It is closed when the test ends.
func NewHookServer(t testing.TB, point string) *HookServer {
	s := &HookServer{t: t, point: point, pauses: make(chan *Pause, 1)}
	s.url = serve(t, s)
	return s
}

// Environ returns the environment variables that make a program call this server.
func (s *HookServer) Environ() []string {
	return []string{faultpoint.URLVariable + "=" + s.url, faultpoint.PointsVariable + "=" + s.point}
}

func (s *HookServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.once.Do(func() {
		p := &Pause{answer: make(chan int, 1)}
		s.pauses <- p
		select {
		case status := <-p.answer:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	})
}

// Paused reports whether a program is paused at the point.
func (s *HookServer) Paused() bool { return len(s.pauses) > 0 }

// Await waits until a program is paused at the point.
func (s *HookServer) Await() *Pause {
	s.t.Helper()
	select {
	case p := <-s.pauses:
		return p
	case <-time.After(Patience):
		s.t.Fatalf("timeout waiting until a program reaches %s", s.point)
		return nil
	}
}

// Resume resumes the program.
func (p *Pause) Resume() { p.answer <- http.StatusOK }

// Panic makes the program panic at the point.
func (p *Pause) Panic() { p.answer <- faultpoint.StatusPanic }

// serve starts an HTTP server and returns its URL. When the test ends, the server and its connections
// are closed.
func serve(t testing.TB, handler http.Handler) (url string) {
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
