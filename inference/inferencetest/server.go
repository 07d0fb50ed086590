package inferencetest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Recorded is a request that a Server received.
type Recorded struct {
	N      int // number of the request to a model, from 1, in the order of arrival
	Method string
	Path   string // with the query
	Header http.Header
	Body   []byte

	wire *Wire // nil: that of Chat Completions
}

// Chat returns the decoded body, of any wire. Members that cannot be decoded are zero.
func (r Recorded) Chat() Chat {
	if r.wire == nil {
		return readChat(r.Body)
	}
	return r.wire.chat(r.Body)
}

// A Chat is the body of a chat completion request.
type Chat struct {
	Model      string            `json:"model"`
	Stream     bool              `json:"stream"`
	Messages   []ChatMessage     `json:"messages"`
	Tools      []json.RawMessage `json:"tools"`
	ToolChoice json.RawMessage   `json:"tool_choice"`
}

// A ChatMessage is one message of a Chat.
type ChatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []ChatCall      `json:"tool_calls"`
}

// Text returns the content if it is a string, else an empty text.
func (m ChatMessage) Text() string {
	var s string
	_ = json.Unmarshal(m.Content, &s) // parts and null have no text
	return s
}

// A ChatCall is one tool call of a ChatMessage.
type ChatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// A Server is an endpoint that plays replies, in the wire of each request's path. Each request to a model takes the
// next Reply. After the last one, it uses the function of Then, or answers with status 400. It
// also answers GET .../models; other paths are not found. It is an http.Handler, so it can also
// run in a separate process.
//
// All methods are safe for concurrent use. It needs no Close: a reply that hangs ends when the
// client disconnects, or with Release.
type Server struct {
	mu        sync.Mutex
	replies   []Reply
	rest      func(Recorded) Reply
	requests  []Recorded
	inFlight  int
	peak      int
	strict    bool
	faults    []string
	arrived   chan struct{} // closed and replaced at each arrival
	released  chan struct{}
	releasing sync.Once
}

// NewServer returns a Server with these replies.
func NewServer(replies ...Reply) *Server {
	return &Server{replies: replies, arrived: make(chan struct{}), released: make(chan struct{})}
}

// Add queues more replies.
func (s *Server) Add(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies = append(s.replies, replies...)
}

// Then sets the function that answers every request after the queued replies, and returns s.
// reply may be called concurrently.
func (s *Server) Then(reply func(Recorded) Reply) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = reply
	return s
}

// Strict makes the server answer requests with Violations with status 400, and returns s. Such
// a request takes no reply.
func (s *Server) Strict() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strict = true
	return s
}

// Start serves on a free loopback port until the test ends, and returns the
// base URL, without a slash at its end.
func (s *Server) Start(tb testing.TB) string {
	tb.Helper()
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		s.Release()
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/v1"
}

// Release ends all replies that hang, now and later.
func (s *Server) Release() { s.releasing.Do(func() { close(s.released) }) }

// Requests returns the requests to models so far, in the order of their arrival.
func (s *Server) Requests() []Recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Violations returns all violations that a strict server has found so far.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// MaxInFlight returns the largest number of requests that were open at once.
func (s *Server) MaxInFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// Await waits until n requests have arrived. If ctx ends first, it returns its cause.
func (s *Server) Await(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		got, arrived := len(s.requests), s.arrived
		s.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"scripted","object":"model"}]}`)
	case r.Method == http.MethodPost && wireOf(r.URL.Path) != nil:
		s.complete(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected
	}
	recorded, reply := s.take(r, body, wireOf(r.URL.Path))
	defer s.leave()
	reply(&Exchange{Recorded: recorded, w: w, gone: r.Context().Done(), released: s.released})
}

// take records a request and chooses its reply.
func (s *Server) take(r *http.Request, body []byte, wire *Wire) (Recorded, Reply) {
	s.mu.Lock()
	recorded := Recorded{
		N: len(s.requests) + 1, Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body,
		wire: wire,
	}
	s.requests = append(s.requests, recorded)
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
	close(s.arrived)
	s.arrived = make(chan struct{})
	var reply Reply
	rest := s.rest
	if faults := wire.violations(body); s.strict && len(faults) > 0 {
		s.faults = append(s.faults, faults...)
		reply = Fault(http.StatusBadRequest, "invalid_request_error", strings.Join(faults, "; "))
	} else if len(s.replies) > 0 {
		reply, s.replies = s.replies[0], s.replies[1:]
	}
	s.mu.Unlock()
	switch {
	case reply != nil:
		return recorded, reply
	case rest != nil:
		return recorded, rest(recorded)
	}
	return recorded, Fault(http.StatusBadRequest, "script_over", "the script has no more replies")
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
}

// An Exchange is a request that is being answered.
type Exchange struct {
	Recorded

	w        http.ResponseWriter
	started  bool
	gone     <-chan struct{}
	released <-chan struct{}
}

// Start sends the status and headers. Later calls have no effect.
func (x *Exchange) Start(status int, header http.Header) {
	if x.started {
		return
	}
	x.started = true
	for name, values := range header {
		x.w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	x.w.WriteHeader(status)
	x.flush()
}

// Send sends bytes immediately. If Start was not called, it sends status 200 first.
func (x *Exchange) Send(bytes string) {
	x.started = true
	_, _ = io.WriteString(x.w, bytes) // the client may have disconnected
	x.flush()
}

func (x *Exchange) flush() { _ = http.NewResponseController(x.w).Flush() }

// Wait waits for event. It returns false if the client disconnects or the server is released
// first.
func (x *Exchange) Wait(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-x.gone:
	case <-x.released:
	}
	return false
}

// Hang keeps the connection open and sends nothing more.
func (x *Exchange) Hang() { x.Wait(nil) }

// Reset breaks the connection: the client sees a reset, or a cut answer. Nothing can be sent
// after it.
func (x *Exchange) Reset() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
