package app

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/config"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/views"
	"turnkeeper/internal/webhooks"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// webhookConns is the size of the deliveries' own connection pool: slow endpoints take no connections
// from turns.
const webhookConns = 3

// webhookGrace is the maximum time that attempts in progress have to finish when the worker stops.
const webhookGrace = 10 * time.Second

// A pusher delivers replies to webhooks; nil: none.
type pusher struct {
	*webhooks.Deliverer
	store *operate.Store
}

// openWebhooks registers the configured webhooks, if the process has the role.
func (w *worker) openWebhooks(ctx context.Context) (*pusher, error) {
	if !w.cfg.HasRole(config.RoleWebhooks) || len(w.cfg.Webhooks) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	mask := w.cfg.Masker().String
	store, err := operate.Open(ctx, storage.Options{URL: w.db.URL, MaxConns: webhookConns, Log: w.log, Mask: mask})
	if err != nil {
		return nil, err
	}
	c := webhooks.Config{
		Store: store, WorkerID: w.id, PollInterval: w.cfg.PollInterval, Grace: min(w.cfg.ShutdownGrace, webhookGrace),
		Mask: mask, Log: w.log,
		View:     func(r turnkeeper.Reply) any { return views.OfPushedReply(r) },
		ViewAsk:  func(a outbox.OpenedAsk) any { return views.OfOpenedAsk(a) },
		Observe:  w.telling.Delivery,
		Rings:    func() (<-chan struct{}, func()) { return w.bell.Subscribe(storage.TopicTurns) },
		AskRings: func() (<-chan struct{}, func()) { return w.bell.Subscribe(storage.TopicAsks) },
	}
	if w.fault != nil {
		c.Fault = w.fault
	}
	for _, name := range slices.Sorted(maps.Keys(w.cfg.Webhooks)) {
		c.Endpoints = append(c.Endpoints, endpointOf(w.cfg.Webhooks[name]))
		w.warnOfStrangers(name, w.cfg.Webhooks[name].Agents)
	}
	p := &pusher{webhooks.New(c), store}
	if err := p.Register(ctx); err != nil {
		store.Close()
		return nil, err
	}
	return p, nil
}

func endpointOf(w config.Webhook) webhooks.Endpoint {
	return webhooks.Endpoint{
		Name: w.Name, URL: w.URL.Reveal(), Origin: w.Origin(), Keys: w.Keys, Agents: w.Agents, SubAgents: w.SubAgents,
		Asks: w.Asks, AllowPrivate: w.AllowPrivate, Timeout: w.Timeout,
		Concurrency: w.Concurrency, MaxAttempts: w.MaxAttempts, MaxAge: w.MaxAge,
	}
}

// warnOfStrangers warns of agents that this worker does not have: they may be misspelt, or be on other workers.
func (w *worker) warnOfStrangers(webhook string, agents []string) {
	known := w.agents.Names()
	strangers := slices.DeleteFunc(slices.Clone(agents), func(name string) bool { return slices.Contains(known, name) })
	if len(strangers) > 0 {
		w.log.Warn("a webhook names agents that this worker does not have", zap.String("webhook", webhook),
			zap.String("agents", strings.Join(strangers, ", ")))
	}
}

// run delivers until ctx ends. Attempts in progress may then continue for a grace period, or until hard ends.
func (p *pusher) run(ctx, hard context.Context) {
	if p == nil {
		return
	}
	p.Run(ctx, hard)
	p.store.Close()
}
