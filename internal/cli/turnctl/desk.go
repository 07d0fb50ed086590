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

// A desk is where a person's browser comes back to after a login elsewhere.
type desk struct {
	redirect string
	server   *http.Server // nil: nobody listens
	came     chan *url.URL
	done     chan struct{} // closed when the server is gone
}

const deskPath = "/callback"

// openDesk listens on a port of this machine; 0: any. Where the address is pasted by
// hand it only names one.
func openDesk(ctx context.Context, port int, paste bool) (*desk, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("nothing can listen on port %d of this machine for the browser to come back to: %w", port, err)
	}
	d := &desk{redirect: "http://" + listener.Addr().String() + deskPath, came: make(chan *url.URL), done: make(chan struct{})}
	if paste {
		close(d.done)
		return d, listener.Close()
	}
	d.server = &http.Server{Handler: d, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10}
	go func() {
		defer close(d.done)
		_ = d.server.Serve(listener) // until close
	}()
	return d, nil
}

func (d *desk) close() {
	if d.server != nil {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = d.server.Shutdown(ctx) // what was answered gets there
		_ = d.server.Close()
	}
	<-d.done
}

// deskPage is what the browser shows; its heading and text hold nothing of what the browser sent. It is no template:
// see shell.addVersion.
const deskPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Turnkeeper</title>
<style>body{font:1.1em system-ui,sans-serif;margin:4em auto;max-width:34em;padding:0 1em}</style></head>
<body><h1>%s</h1><p>%s</p></body></html>
`

// ServeHTTP takes the browser in. Whatever else comes by is sent away, and does not end
// the wait.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	back := r.URL
	if r.Method != http.MethodGet || back.Path != deskPath || back.Query().Get("state") == "" {
		http.Error(w, "nothing is here", http.StatusNotFound)
		return
	}
	page := struct{ Head, Text string }{"Back to the terminal", "You can close this window: turnctl says whether the login is good."}
	if back.Query().Get("error") != "" {
		page.Head = "Not logged in"
	}
	select {
	case d.came <- back:
	case <-r.Context().Done():
		return
	case <-time.After(5 * time.Second):
		page.Head, page.Text = "Nobody waits for this", "This login was not begun by the turnctl that runs, or is over."
		w.WriteHeader(http.StatusConflict)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = fmt.Fprintf(w, deskPage, page.Head, page.Text) // the person sees the terminal
}

// visitByBrowser prints the address, and waits for the browser that comes back with its
// state.
func visitByBrowser(s *shell.Session, d *desk) func(context.Context, string) (*url.URL, error) {
	return func(ctx context.Context, address string) (*url.URL, error) {
		s.Err.Line("open this address in a browser of this machine (no browser here: --paste):")
		s.Err.Line("%s", term.Plain(address))
		for {
			select {
			case back := <-d.came:
				if back.Query().Get("state") == stateOf(address) {
					return back, nil
				}
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

// visitByPaste prints the address, and reads the one that the browser came to.
func visitByPaste(ctx context.Context, s *shell.Session, address string) (*url.URL, error) {
	s.Err.Line("open this address in a browser, log in, and paste here the address that it ends at:")
	s.Err.Line("%s", term.Plain(address))
	type read struct {
		line string
		err  error
	}
	lines := make(chan read, 1)
	go func() { // it may outlive the wait: nothing ends a read of a terminal
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
			return nil, errors.New("that is not the address that this login ends at: it has a code and the state of the address above")
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
