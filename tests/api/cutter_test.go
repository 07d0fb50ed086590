package api_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
)

// A cutter is a proxy for several processes. It sends each request to a random process and cuts the response
// off after a random number of bytes.
type cutter struct {
	*httptest.Server
	most func() int // maximum bytes of a response
	cuts atomic.Int64
	// refusals counts responses at which an EventSource gives up.
	refusals atomic.Int64
	pages    map[string]string // pages that the proxy itself serves, by path

	mu    sync.Mutex
	bases []string
}

func newCutter(t *testing.T, most func() int, pages map[string]string) *cutter {
	t.Helper()
	c := &cutter{most: most, pages: pages}
	transport := &http.Transport{DisableKeepAlives: true}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite:        func(r *httputil.ProxyRequest) { c.aim(r) },
		ModifyResponse: c.wrap,
		// A request to a dead process fails as it does without a proxy.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page, here := c.pages[r.URL.Path]; here {
			w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(r.URL.Path)))
			_, _ = io.WriteString(w, page)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	c.Config.ErrorLog, _ = zap.NewStdLogAt(zap.NewNop(), zap.DebugLevel) // it would log each cut
	proxy.ErrorLog = c.Config.ErrorLog
	c.Start()
	t.Cleanup(func() {
		c.CloseClientConnections()
		c.Close()
		transport.CloseIdleConnections()
	})
	return c
}

// to sets the processes.
func (c *cutter) to(bases ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bases = bases
}

func (c *cutter) aim(r *httputil.ProxyRequest) {
	c.mu.Lock()
	base := c.bases[rand.IntN(len(c.bases))]
	c.mu.Unlock()
	target, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	r.SetURL(target)
	r.Out.Host = ""
}

func (c *cutter) wrap(resp *http.Response) error {
	streams := resp.Header.Get("Content-Type") == "text/event-stream"
	events := strings.HasSuffix(resp.Request.URL.Path, "/events") // a browser also requests its icon
	if events && resp.StatusCode != http.StatusNoContent && (resp.StatusCode != http.StatusOK || !streams) {
		c.refusals.Add(1)
	}
	resp.Body = &cutBody{ReadCloser: resp.Body, cutter: c, left: c.most()}
	return nil
}

// A cutBody ends after some byte.
type cutBody struct {
	io.ReadCloser
	cutter *cutter
	left   int
}

var errCut = errors.New("cut")

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.cutter.cuts.Add(1)
		return 0, errCut
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
