package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"turnkeeper/httpapi"
	"turnkeeper/internal/config"
	"turnkeeper/storage"
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
	store  *storage.Store
	log    *zap.Logger
}

// openAPI serves the HTTP API, if the process has it.
func openAPI(ctx context.Context, cfg *config.Config, db *Database, bell *storage.Bell, telling *telling, log *zap.Logger) (*api, error) {
	if !cfg.HasRole(config.RoleAPI) || cfg.Listen == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	listener, err := httpapi.Listen(ctx, cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) && cfg.Listen == config.Default().Listen {
		log.Warn("the HTTP API is off here: another process of this machine has its address; set listen to have it on another one",
			zap.String("listen", cfg.Listen))
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("listen is %s, and the process cannot listen there: %w", cfg.Listen, err)
	}
	mask := cfg.Masker().String
	store, err := storage.Open(ctx, storage.Options{URL: db.URL, MaxConns: apiConns, Log: log, Mask: mask})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	// By another name it is called from elsewhere, through a proxy say.
	needToken := !onLoopback(listener) || len(cfg.AllowedHosts) > 0
	if needToken {
		if err := checkTokens(ctx, store, listener); err != nil {
			store.Close()
			return nil, errors.Join(err, listener.Close())
		}
	}
	served := httpapi.New(httpapi.Config{
		Store: store, Rings: func() (<-chan struct{}, func()) { return bell.Subscribe(storage.TopicTurns) }, Log: log, Mask: mask,
		NeedToken: needToken, Hosts: allowedHosts(cfg), MaxMessageBytes: cfg.MaxMessageBytes, Rate: cfg.HTTPRate, Requests: cfg.HTTPConnections,
		Metrics: telling.Handler(), Observe: telling.Request,
	})
	return &api{httpapi.Serve(served, listener, cfg.HTTPConnections), served, store, log}, nil
}

func onLoopback(l net.Listener) bool {
	address, ok := l.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// checkTokens refuses to serve others than this machine when nobody could be
// told from anybody.
func checkTokens(ctx context.Context, store *storage.Store, l net.Listener) error {
	there, err := store.AnyToken(ctx)
	if err == nil && !there {
		err = fmt.Errorf("listen is %s, which other machines can reach by that address or by allowed_hosts, and there is no token yet: "+
			"make one with \"turnctl tokens create\", or listen on 127.0.0.1 without allowed_hosts", l.Addr())
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

// TokenScopes are what a token of the HTTP API can be for.
func TokenScopes() []string { return httpapi.Scopes() }
