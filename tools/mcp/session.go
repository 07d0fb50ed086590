package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"turnkeeper/tools/mcp/mcpdef"
)

// legacyProtocol is the version requested from a server that does not respond
// to a request for a newer one.
const legacyProtocol = "2025-11-25"

// A session is one connection to a server, from the handshake until it is lost
// or closed.
type session struct {
	server  Server
	limits  limits
	log     *zap.Logger
	sdk     *sdk.ClientSession
	process *stdio          // nil: over HTTP
	ctx     context.Context // ends with the session
	end     context.CancelCauseFunc
	idle    func() // closes idle connections
	relist  func() // called when the list of tools has changed

	up       atomic.Bool // the handshake has succeeded
	leaving  atomic.Bool // close was called
	closing  sync.Once
	doubted  atomic.Bool   // a call has failed since the server has shown that it knows the session
	checking chan struct{} // semaphore of fit
	mu       sync.Mutex
	calls    int                     // running
	retired  error                   // why it accepts no more calls; nil: it accepts them
	progress map[string]func(string) // of the running calls, by token
	samplers []*sampler              // of the running calls that may use models, oldest first
	noted    atomic.Int64            // number of requests by the server that were noted
}

type connector struct {
	server Server
	log    *zap.Logger
	limits limits
	relist func()
	auth   authorizer // nil: the server needs no tokens
}

// connect opens a session within ctx. If the server does not respond to a
// request for the newest protocol, it tries again with legacyProtocol.
func (c connector) connect(ctx context.Context) (*session, error) {
	if c.server.Protocol != "" {
		return c.try(ctx, c.server.Protocol)
	}
	first, stop := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		first, stop = context.WithTimeout(ctx, cmp.Or(c.limits.Newest, time.Until(deadline)/2))
	}
	defer stop()
	s, err := c.try(first, "")
	if err != nil && first.Err() != nil && ctx.Err() == nil {
		return c.try(ctx, legacyProtocol)
	}
	return s, err
}

var errNoAnswer = errors.New("it did not answer in time")

func (c connector) try(ctx context.Context, protocol string) (*session, error) {
	own, end := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &session{
		server: c.server, limits: c.limits, log: c.log, ctx: own, end: end, idle: func() {}, relist: c.relist,
		progress: map[string]func(string){},
		checking: make(chan struct{}, 1),
	}
	transport, err := c.transport(s)
	if err != nil {
		end(err)
		return nil, err
	}
	client := s.client()
	type made struct {
		sdk *sdk.ClientSession
		err error
	}
	done := make(chan made, 1)
	go func() {
		session, err := client.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: protocol})
		done <- made{session, err}
	}()
	select {
	case m := <-done:
		if m.err == nil {
			s.sdk = m.sdk
			s.up.Store(true)
			go s.watch()
			return s, nil
		}
		err = m.err
	case <-ctx.Done():
		err = errNoAnswer
		go func() { // the attempt may still succeed
			if m := <-done; m.sdk != nil {
				_ = m.sdk.Close()
			}
		}()
	}
	if ctx.Err() != nil {
		err = errNoAnswer
	}
	if s.process != nil && !errors.Is(err, errNoAnswer) {
		err = errors.New(s.process.reason(err))
	}
	s.drop(err)
	return nil, plainError(err)
}

func (c connector) transport(s *session) (sdk.Transport, error) {
	if len(c.server.Command) > 0 {
		process, err := startProgram(c.server, c.log, c.limits)
		s.process = process
		return process, err
	}
	client, closeIdle := newHTTPClient(s.ctx, c.server, c.auth, c.limits, func(status int) {
		if s.up.Load() { // during the handshake, the SDK may still try another way
			s.retire(fmt.Errorf("the server refused a request with HTTP status %d: it may have been restarted", status))
		}
	})
	s.idle = closeIdle
	return &sdk.StreamableClientTransport{Endpoint: c.server.URL, HTTPClient: client, MaxRetries: c.limits.Resume,
		MaxEventSize: 2 * c.limits.Frame}, nil
}

// client returns a protocol client with the capabilities that the operator
// allows.
func (s *session) client() *sdk.Client {
	options := &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{},
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true}, // answerInput handles these requests
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			s.relist()
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			s.tell(r.Params)
		},
		//nolint:staticcheck // older protocols use it
		LoggingMessageHandler: func(_ context.Context, r *sdk.LoggingMessageRequest) {
			s.log.Debug("an MCP server logs", zap.String("level", string(r.Params.Level)),
				zap.String("text", s.server.bounded(fmt.Sprint(r.Params.Data), maxLogLine)))
		},
	}
	if s.server.AcceptDefaults {
		options.ElicitationHandler = s.elicit
	}
	if s.server.AskForInput {
		options.Capabilities.Elicitation = &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}}
	}
	if s.server.Sampling.Allow {
		options.Capabilities.Sampling = &sdk.SamplingCapabilities{} //nolint:staticcheck // older protocols use it
	}
	if len(s.server.Roots) > 0 {
		options.Capabilities.RootsV2 = &sdk.RootCapabilities{} //nolint:staticcheck // older protocols use it
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "turnkeeper", Version: "1"}, options)
	client.AddRoots(s.roots()...) //nolint:staticcheck // older protocols use it
	client.AddReceivingMiddleware(s.answerAsked)
	return client
}

// watch ends the session when its connection is lost.
func (s *session) watch() {
	err := s.sdk.Wait()
	if s.ctx.Err() != nil || s.leaving.Load() {
		return
	}
	why := "the connection was lost"
	if s.process != nil {
		select {
		case <-s.process.broken:
			err = s.process.why
		default:
		}
		why = s.process.reason(err)
	} else if err != nil {
		why = plainError(err).Error()
	}
	s.drop(errors.New(why))
}

// begin registers a call. ok is false if the session accepts no more calls.
func (s *session) begin() (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired != nil || s.ctx.Err() != nil {
		return false
	}
	s.calls++
	return true
}

// finish ends a call. It drops a retired session after its last call.
func (s *session) finish() {
	s.mu.Lock()
	s.calls--
	over, why := s.calls == 0 && s.retired != nil, s.retired
	s.mu.Unlock()
	if over {
		s.drop(why)
	}
}

// retire makes the session accept no more calls. Running calls continue.
func (s *session) retire(why error) {
	s.mu.Lock()
	if s.retired == nil {
		s.retired = why
	}
	over := s.calls == 0
	s.mu.Unlock()
	if over {
		s.drop(why)
	}
}

// busy reports whether calls are running.
func (s *session) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls > 0
}

// lost returns a channel that is closed when the session cannot be used any
// more.
func (s *session) lost() <-chan struct{} { return s.ctx.Done() }

// drop ends the session at once. Running requests fail.
func (s *session) drop(why error) {
	s.closing.Do(func() {
		s.end(why)
		if s.process != nil {
			_ = s.process.Close()
		}
		go s.hangUp()
	})
}

// close ends the session gracefully, and returns when its program and readers
// have ended.
func (s *session) close() {
	s.closing.Do(func() {
		s.leaving.Store(true)
		s.hangUp()
		s.end(errClosed)
	})
	if s.process != nil {
		_ = s.process.Close()
		<-s.process.gone()
		s.process.readers.Wait()
	}
}

var errClosed = errors.New("the session was closed")

func (s *session) hangUp() {
	if s.sdk != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.sdk.Close() // watch reports its error
		}()
		select {
		case <-done:
		case <-time.After(s.limits.End):
		}
	}
	s.idle()
}

// probe drops the session if its server does not answer a ping. Any answer will
// do, even the error that ping is unknown.
func (s *session) probe() {
	ctx, stop := context.WithTimeout(s.ctx, s.limits.Ping)
	defer stop()
	if err := s.sdk.Ping(ctx, nil); err != nil && ctx.Err() != nil && s.ctx.Err() == nil {
		s.drop(errors.New("it does not answer any more"))
	}
}

// doubt notes that a call failed in a way that a server may answer with that has forgotten the session. A program's
// session is the program.
func (s *session) doubt() {
	if s.process == nil {
		s.doubted.Store(true)
	}
}

// fit reports whether the next call may use the session. After a call that failed it lists the server's tools, because
// a server may answer a ping of a session that it does not know. It retires the session if there is no list, unless the
// answer is about credentials or the rate.
func (s *session) fit(ctx context.Context) bool {
	if !s.doubted.Load() {
		return true
	}
	select {
	case s.checking <- struct{}{}:
		defer func() { <-s.checking }()
	case <-ctx.Done():
		return true // the call ends
	}
	if !s.doubted.Swap(false) { // checked by another call
		return s.usable()
	}
	own, stop := context.WithTimeout(s.ctx, s.limits.Ping)
	defer stop()
	traced, trace := withTrace(own)
	_, err := s.sdk.ListTools(traced, &sdk.ListToolsParams{})
	if err == nil {
		return s.usable()
	}
	if status := int(trace.status.Load()); status >= 400 && status < 500 && !refusedForGood(status) {
		s.doubted.Store(true)
		return s.usable()
	}
	s.retire(
		fmt.Errorf(
			"a call has failed, and after it the server does not list its tools: it may have forgotten the session (%w)", plainError(err)))
	return false
}

// usable reports whether the session accepts calls.
func (s *session) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired == nil && s.ctx.Err() == nil
}

func (s *session) list(ctx context.Context) ([]mcpdef.Tool, error) {
	return listTools(ctx, s.sdk, s.server, s.limits.Memory)
}

// follow passes the progress of a call to the function to, until stop is
// called.
func (s *session) follow(to func(string)) (token string, stop func()) {
	token = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress[token] = to
	return token, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.progress, token)
	}
}

// tell passes progress to its call. It ignores progress of a call that has
// ended.
func (s *session) tell(p *sdk.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	s.mu.Lock()
	to := s.progress[token]
	s.mu.Unlock()
	if to != nil {
		to(s.server.progressText(p))
	}
}

// tellAll passes text to every running call as progress.
func (s *session) tellAll(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, to := range s.progress {
		to(text)
	}
}

func (s Server) progressText(p *sdk.ProgressNotificationParams) string {
	text := strconv.FormatFloat(p.Progress, 'f', -1, 64)
	if p.Total > 0 {
		text += " of " + strconv.FormatFloat(p.Total, 'f', -1, 64)
	}
	if p.Message != "" {
		text += ": " + s.bounded(p.Message, maxNote)
	}
	return text
}

const maxNote = 300 // bytes of a progress message

// bounded returns text from outside, cleaned and cut to about n bytes. A text that is cut is masked first: of half a
// secret nobody could tell that it is one.
func (s Server) bounded(text string, n int) string {
	if len(text) <= n {
		return clean(text)
	}
	return clean(s.part(text, 0, n)) + "…"
}

// part returns a text from one byte up to another, with secrets masked.
func (s Server) part(text string, from, to int) string {
	if s.Mask == nil {
		return text[from:to]
	}
	return s.Mask(text, from, to)
}

// waitLost returns a channel that is closed when the session is lost. It drops
// the session if the cause of the loss is still unknown a second after
// limits.Reason.
func waitLost(s *session) <-chan struct{} {
	done := make(chan struct{})
	late := time.AfterFunc(s.limits.Reason+time.Second, func() { s.drop(errors.New("the connection was lost")) })
	context.AfterFunc(s.ctx, func() {
		late.Stop()
		close(done)
	})
	return done
}
