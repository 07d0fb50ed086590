package app_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/storage/storagetest"
)

// startAndStop runs a worker until it is ready, calls meanwhile, and stops it.
func startAndStop(cfg *config.Config, meanwhile func(app.Ready)) error {
	soft, stop := context.WithCancel(context.Background())
	defer stop()
	return app.RunWorker(soft, context.Background(), cfg, zap.NewNop(), func(r app.Ready) {
		meanwhile(r)
		stop()
	})
}

func TestWhereTheAPIIs(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	tests := []struct {
		name   string
		change func(*config.Config)
		served bool
		refuse string
	}{
		{"by default", func(*config.Config) {}, true, ""},
		{"the only role", func(c *config.Config) { c.Roles = []string{config.RoleAPI} }, true, ""},
		{"not a role", func(c *config.Config) { c.Roles = []string{config.RoleWorker} }, false, ""},
		{"off", func(c *config.Config) { c.Listen = "" }, false, ""},
		{"an address that is taken", func(c *config.Config) {
			c.Listen = taken.Addr().String()
		}, false, "cannot listen on"},
		{"an address of the metrics that is taken", func(c *config.Config) {
			c.MetricsListen = taken.Addr().String()
		}, false, "cannot listen on"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := settings(t, "---\n---\nYou help.\n")
			test.change(cfg)
			err := startAndStop(cfg, func(r app.Ready) {
				if (r.API != "") != test.served {
					t.Errorf("the worker says that its API is at %q", r.API)
				}
				if test.served {
					answers(t, r.API)
				}
			})
			switch {
			case test.refuse == "" && err != nil:
				t.Error(err)
			case test.refuse != "" && (err == nil || !strings.Contains(err.Error(), test.refuse)):
				t.Errorf("the worker ended with %v, want %q", err, test.refuse)
			}
			if test.refuse != "" {
				wroteNothing(t, cfg.DatabaseURL.Reveal())
			}
		})
	}
}

// wroteNothing checks that a worker that failed to start did not register in the database.
func wroteNothing(t *testing.T, url string) {
	t.Helper()
	store := storagetest.Open(t, url)
	workers, err := store.Workers(t.Context())
	if err != nil || len(workers) > 0 {
		t.Errorf("there are the workers %v, %v", workers, err)
	}
	if agents, err := store.Agents(t.Context()); err != nil || len(agents) > 0 {
		t.Errorf("there are the agents %v, %v", agents, err)
	}
}

func answers(t *testing.T, base string) {
	t.Helper()
	ask(t, base, "", http.StatusOK, "helper")
	ask(t, base, "a proxy", http.StatusUnauthorized, "send Authorization: Bearer TOKEN;") // not masked
}

func ask(t *testing.T, base, via string, status int, contains string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/agents", nil)
	if err != nil {
		t.Fatal(err)
	}
	if via != "" {
		req.Header.Set("Via", via)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != status ||
		!strings.Contains(string(text), contains) {
		t.Errorf("the agents are answered with %s %s, %v", resp.Status, text, err)
	}
}
