// Package endtest checks that a request to another server ends when the context of its caller ends.
package endtest

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// patience is the timeout of every wait for an event.
const patience = time.Minute

// A Hang is an http.Handler that answers no request: it waits until the client gives up. The zero value does not begin
// to answer.
type Hang struct {
	begins bool // it sends the header of an answer, but no body
	taken  chan struct{}
	left   chan struct{}
	over   chan struct{} // closed when the test has failed, so that servers can end
}

// Each runs check with a server that does not begin to answer, and with one whose answers do not end.
func Each(t *testing.T, check func(t *testing.T, h *Hang)) {
	for name, begins := range map[string]bool{"no answer": false, "an answer without an end": true} {
		t.Run(name, func(t *testing.T) {
			check(t, &Hang{begins: begins, taken: make(chan struct{}, 100), left: make(chan struct{}, 100),
				over: make(chan struct{})})
		})
	}
}

// ServeHTTP takes a request and does not answer it.
func (h *Hang) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // net/http notices only then that the client is gone
	if h.begins {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	}
	note(h.taken)
	select {
	case <-r.Context().Done():
		note(h.left)
	case <-h.over:
	}
}

func note(event chan<- struct{}) {
	select {
	case event <- struct{}{}:
	default: // nobody waits for it
	}
}

// Check calls request, ends its context once the server has the request, and returns its error, which must not be nil.
// It fails the test if request does not return, or if the server still has the request. It may be called once.
func (h *Hang) Check(t *testing.T, request func(ctx context.Context) error) error {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	defer close(h.over)
	returned := make(chan error, 1)
	go func() { returned <- request(ctx) }()
	select {
	case <-h.taken:
	case err := <-returned:
		t.Fatalf("it did not wait for an answer: %v", err)
	case <-time.After(patience):
		t.Fatal("the server has got no request")
	}
	end()
	var err error
	select {
	case err = <-returned:
	case <-time.After(patience):
		t.Fatal("it goes on although its context has ended")
	}
	if err == nil {
		t.Error("it has no error")
	}
	select {
	case <-h.left:
	case <-time.After(patience):
		t.Error("its request goes on although its context has ended")
	}
	return err
}
