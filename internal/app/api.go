package app

import (
	"context"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/httpapi/page"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// apiConns is the size of the API's own connection pool: busy clients of the API take no connections
// from turns.
const apiConns = 4

// apiCloseTime is the time that requests have to finish once the worker has stopped.
const apiCloseTime = 3 * time.Second

// An api is the HTTP API of a worker; nil: none.
type api struct {
	*httpapi.Server
	served *httpapi.API
	store  *operate.Store
	log    *zap.Logger
}

// openAPI starts the HTTP API, if the worker has an address for it.
func (w *worker) openAPI(ctx context.Context) (*api, error) {
	if w.bound.api == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	masker := w.cfg.Masker()
	mask := masker.String
	store, err := operate.Open(ctx, storage.Options{URL: w.db.URL, MaxConns: apiConns, Lazy: true,
		Log: w.log, Outage: w.outage, Mask: mask})
	if err != nil {
		return nil, err
	}
	served := httpapi.New(httpapi.Config{
		Store: store, Rings: func() (<-chan struct{}, func()) {
			return w.bell.Subscribe(storage.TopicTurns)
		}, Log: w.log, Mask: mask,
		Diagnosis: diagnosis.Settings{Database: w.db.Where(), NeedsToken: w.needToken(), DBPoolSize: w.cfg.DBPoolSize,
			PollInterval: w.cfg.PollInterval, Retention: w.cfg.Retention},
		FourEyes: w.cfg.FourEyes, NeedToken: w.needToken(), Hosts: allowedHosts(w.cfg),
		MaxMessageBytes: w.cfg.MaxMessageBytes, Rate: w.cfg.HTTPRate,
		Streams: w.cfg.HTTPStreams, Requests: w.cfg.HTTPConnections, Metrics: w.telling.Handler(),
		Refused: w.store.Refused, Observe: w.telling.Request, Rebuild: rebuilder(store, masker.Part),
	})
	return &api{httpapi.Serve(served, w.bound.api, w.cfg.HTTPConnections), served, store, w.log}, nil
}

// rebuilder rebuilds requests from the store. part returns a part of a text, with its secrets masked.
func rebuilder(store *operate.Store, part func(text string, from, to int) string) page.Rebuild {
	return func(ctx context.Context, turn turnkeeper.TurnID, round int) (page.SentRequest, error) {
		requests, err := setup.OpenRequests(ctx, store, turn)
		if err != nil {
			return page.SentRequest{}, err
		}
		sent := page.SentRequest{}
		if sent.Sent, err = requests.Sent(ctx, round); err != nil {
			return sent, err
		}
		sent.Compared, sent.Unknown = requests.Compare(ctx, round)
		if sent.Compared != nil && sent.Compared.Differs != nil {
			sent.Before, sent.After = sent.Compared.Differs.Excerpts(part)
		}
		return sent, nil
	}
}

// needToken reports whether every request needs a token. allowed_hosts means that the API is reachable
// from other machines, for example through a proxy.
func (w *worker) needToken() bool { return !onLoopback(w.bound.api) || len(w.cfg.AllowedHosts) > 0 }

func onLoopback(l net.Listener) bool {
	address, ok := l.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// warnOfNoToken says how to create the first token, if every request needs one and there is none. The
// API answers 401 until then: a token works as soon as it exists, and none is written to a log.
func (w *worker) warnOfNoToken(ctx context.Context) error {
	if w.bound.api == nil || !w.needToken() {
		return nil
	}
	there, err := w.store.AnyToken(ctx)
	if err == nil && !there {
		w.log.Warn(
			"every request to the HTTP API needs a token, because of listen or allowed_hosts, and there is none yet: until then each is answered 401; "+
				"create one with: turnctl tokens create NAME --scopes send,read", zap.Stringer("listen",
				w.bound.api.Addr()))
	}
	return err
}

// allowedHosts returns the setting allowed_hosts and the host of listen.
func allowedHosts(cfg *config.Config) []string {
	hosts := cfg.AllowedHosts
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && host != "" {
		hosts = append([]string{strings.ToLower(host)}, hosts...)
	}
	return hosts
}

// url returns the API's URL; empty: no API.
func (a *api) url() string {
	if a == nil {
		return ""
	}
	return "http://" + a.Address()
}

// watchers returns the number of clients that follow the events of a turn.
func (a *api) watchers() int { return a.served.Watchers() }

// drain ends streams and waits; other requests are answered until close.
func (a *api) drain() {
	if a != nil {
		a.Drain()
	}
}

// close stops the API within apiCloseTime; when hard ends, at once.
func (a *api) close(hard context.Context) {
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), apiCloseTime)
	defer cancel()
	defer context.AfterFunc(hard, cancel)()
	if err := a.Close(ctx); err != nil {
		a.log.Warn("could not stop the HTTP API cleanly", zap.Error(err))
	}
	a.store.Close()
}
