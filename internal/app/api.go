package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper/httpapi"
	"turnkeeper/internal/config"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// apiConns are the API's own connections to the database: whoever asks it much
// takes none from the turns.
const apiConns = 4

// apiCloseTime is what requests get to end once the worker has stopped.
const apiCloseTime = 3 * time.Second

// An api is the HTTP API of a worker; nil: it has none.
type api struct {
	*httpapi.Server
	served *httpapi.API
	store  *operate.Store
	log    *zap.Logger
}

// openAPI serves the HTTP API at the worker's address, if it has one.
func (w *worker) openAPI(ctx context.Context) (*api, error) {
	if w.bound.api == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	mask := w.cfg.Masker().String
	store, err := operate.Open(ctx, storage.Options{URL: w.db.URL, MaxConns: apiConns, Log: w.log, Mask: mask})
	if err != nil {
		return nil, err
	}
	served := httpapi.New(httpapi.Config{
		Store: store, Rings: func() (<-chan struct{}, func()) { return w.bell.Subscribe(storage.TopicTurns) }, Log: w.log, Mask: mask,
		NeedToken: w.needToken(), Hosts: allowedHosts(w.cfg), MaxMessageBytes: w.cfg.MaxMessageBytes, Rate: w.cfg.HTTPRate,
		Requests: w.cfg.HTTPConnections, Metrics: w.telling.Handler(), Observe: w.telling.Request,
	})
	return &api{httpapi.Serve(served, w.bound.api, w.cfg.HTTPConnections), served, store, w.log}, nil
}

// needToken says that nobody is served without one. By another name the API is called from
// elsewhere, through a proxy say.
func (w *worker) needToken() bool { return !onLoopback(w.bound.api) || len(w.cfg.AllowedHosts) > 0 }

func onLoopback(l net.Listener) bool {
	address, ok := l.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// checkTokens refuses to serve others than this machine when nobody could be
// told from anybody.
func (w *worker) checkTokens(ctx context.Context) error {
	if w.bound.api == nil || !w.needToken() {
		return nil
	}
	there, err := w.store.AnyToken(ctx)
	if err == nil && !there {
		err = fmt.Errorf("listen is %s, which other machines can reach by that address or by allowed_hosts, and there is no token yet: "+
			"make one with \"turnctl tokens create\", or listen on 127.0.0.1 without allowed_hosts", w.bound.api.Addr())
	}
	return err
}

// allowedHosts are the names of the settings, and the one it listens on.
func allowedHosts(cfg *config.Config) []string {
	hosts := cfg.AllowedHosts
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && host != "" {
		hosts = append([]string{strings.ToLower(host)}, hosts...)
	}
	return hosts
}

// url is where the API is; empty: there is none.
func (a *api) url() string {
	if a == nil {
		return ""
	}
	return "http://" + a.Address()
}

// watchers is how many clients follow a turn's events.
func (a *api) watchers() int { return a.served.Watchers() }

// drain tells clients to go on elsewhere; other requests are answered until close.
func (a *api) drain() {
	if a != nil {
		a.Drain()
	}
}

// close stops; hard ends what still runs at once.
func (a *api) close(hard context.Context) {
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), apiCloseTime)
	defer cancel()
	defer context.AfterFunc(hard, cancel)()
	if err := a.Close(ctx); err != nil {
		a.log.Warn("the HTTP API was not stopped in good order", zap.Error(err))
	}
	a.store.Close()
}
