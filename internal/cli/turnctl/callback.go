package turnctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
)

// A callbackServer receives the browser's redirect after a login.
type callbackServer struct {
	redirect string
	server   *http.Server // nil with --paste
	received chan *url.URL
	done     chan struct{} // closed when the server has stopped
}

const callbackPath = "/callback"

// startCallback listens on a port of this machine; 0 means any free port. With paste it
// only chooses the port and does not serve.
func startCallback(ctx context.Context, port int, paste bool) (*callbackServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("cannot listen on port %d of this machine for the login's redirect: %w", port, err)
	}
	d := &callbackServer{redirect: "http://" + listener.Addr().String() + callbackPath, received: make(chan *url.URL),
		done: make(chan struct{})}
	if paste {
		close(d.done)
		return d, listener.Close()
	}
	d.server = &http.Server{Handler: d, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		MaxHeaderBytes: 32 << 10}
	go func() {
		defer close(d.done)
		_ = d.server.Serve(listener) // until close
	}()
	return d, nil
}

func (d *callbackServer) close() {
	if d.server != nil {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = d.server.Shutdown(ctx) // lets responses finish
		_ = d.server.Close()
	}
	<-d.done
}

// callbackPage is the response to the browser. Heading and text contain nothing that the browser sent. It does not use
// html/template: see shell.addVersion.
const callbackPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Turnkeeper</title>
<style>body{font:1.1em system-ui,sans-serif;margin:4em auto;max-width:34em;padding:0 1em}</style></head>
<body><h1>%s</h1><p>%s</p></body></html>
`

// ServeHTTP receives the redirect. Other requests get 404 and do not end the wait.
func (d *callbackServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	back := r.URL
	if r.Method != http.MethodGet || back.Path != callbackPath || back.Query().Get("state") == "" {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	page := struct{ Head, Text string }{"Return to the terminal",
		"You can close this window: turnctl reports whether the login succeeded."}
	if back.Query().Get("error") != "" {
		page.Head = "Not logged in"
	}
	select {
	case d.received <- back:
	case <-r.Context().Done():
		return
	case <-time.After(5 * time.Second):
		page.Head, page.Text = "No login in progress", "The running turnctl did not start this login, or it has ended."
		w.WriteHeader(http.StatusConflict)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = fmt.Fprintf(w, callbackPage, page.Head, page.Text) // the terminal shows the result too
}

// visitByBrowser prints the address and waits for a redirect with its state.
func visitByBrowser(s *shell.Session, d *callbackServer) func(context.Context, string) (*url.URL, error) {
	return func(ctx context.Context, address string) (*url.URL, error) {
		s.Err.Line("open this address in a browser on this machine (if there is none, use --paste):")
		s.Err.Line("%s", term.Plain(address))
		for {
			select {
			case back := <-d.received:
				if back.Query().Get("state") == stateOf(address) {
					return back, nil
				}
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

// visitByPaste prints the address and reads the address of the redirect.
func visitByPaste(ctx context.Context, s *shell.Session, address string) (*url.URL, error) {
	s.Err.Line("open this address in a browser, log in, and paste the browser's final address here:")
	s.Err.Line("%s", term.Plain(address))
	type read struct {
		line string
		err  error
	}
	lines := make(chan read, 1)
	go func() { // may outlive the wait: a terminal read cannot be interrupted
		line, err := bufio.NewReader(s.Stdin).ReadString('\n')
		lines <- read{line, err}
	}()
	select {
	case got := <-lines:
		line := strings.TrimSpace(got.line)
		if line == "" {
			return nil, errNoAddress
		}
		back, err := url.Parse(line)
		if err != nil || back.Query().Get("state") != stateOf(address) {
			return nil,
				errors.New(
					"this is not the final address of this login: it must have a code, and the state of the address above")
		}
		return back, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func stateOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Query().Get("state")
}
