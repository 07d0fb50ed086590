package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/config"
)

const (
	signing    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldSigning = "whsec_b2xkIHNlY3JldCBvZiB0aGUgd2ViaG9va3M="
)

func TestWebhooks(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, `webhooks:
  shop:
    old_secret_env: OLD
    url_env: URL
    secret_env: NEW
    agents: [desk, clerk, desk]
    allow_private: true
    timeout: 2s
    concurrency: 9
    max_attempts: 3
    max_age: 2h
  plain: {url: "http://plain.example:8080/a?b=c", secret_env: NEW}
`)
	got, err := config.Load(config.LoadOptions{Env: env(map[string]string{"OLD": oldSigning, "NEW": signing + "\n",
		"URL": "https://shop.example/t0ken"})})
	if err != nil {
		t.Fatal(err)
	}
	w := got.Webhooks["shop"]
	if len(w.Keys) != 2 || string(w.Keys[1]) != "old secret of the webhooks" || len(w.Keys[0]) != 24 ||
		w.Origin() != "https://shop.example" {
		t.Errorf("%+v", w)
	}
	want := config.Webhook{Name: "shop", Agents: []string{"clerk", "desk"}, AllowPrivate: true,
		Timeout: 2 * time.Second, Concurrency: 9, MaxAttempts: 3, MaxAge: 2 * time.Hour}
	ignored := cmp.FilterPath(func(p cmp.Path) bool {
		return strings.Contains("URL Keys secretValues", p.Last().String()[1:])
	}, cmp.Ignore())
	if diff := cmp.Diff(want, w, ignored); diff != "" {
		t.Error(diff)
	}
	if p := got.Webhooks["plain"]; p.Origin() != "http://plain.example:8080" || p.Agents != nil || p.AllowPrivate ||
		p.Timeout != 15*time.Second || p.MaxAge != 72*time.Hour {
		t.Errorf("%+v", p)
	}
	for _, secret := range []string{signing, oldSigning, strings.TrimPrefix(signing, "whsec_"),
		"https://shop.example/t0ken"} {
		if !strings.Contains(strings.Join(got.Secrets(), "\n"), secret) {
			t.Errorf("the masker is not told of %s", secret)
		}
	}
}

func TestFaultsOfWebhooks(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{
		"Shop: {}":                            "webhooks has the name",
		"shop: {url: 'https://a', secret: x}": "unknown key",
		"shop: {secret_env: NEW}":             "webhooks.shop.url is missing",
		"shop: {url: 'https://a'}":            "webhooks.shop.secret_env is missing",
		"shop: {url: 'https://a', url_env: URL, secret_env: NEW}":              "webhooks.shop has url and url_env: set only one of them",
		"shop: {url: 'https://a', secret_env: NEW, secret_file: x}":            "webhooks.shop.secret_file names the file",
		"shop: {url: 'ftp://t0ken', secret_env: NEW}":                          "webhooks.shop.url: it must be an http or https address",
		"shop: {url: 'https://u:t0ken@a', secret_env: NEW}":                    "webhooks.shop.url: it must not have a user",
		"shop: {url: 'https://a', secret_env: SHORT}":                          "24 to 64 bytes in base64",
		"shop: {url: 'https://a', secret_env: PLAIN}":                          "turnctl webhooks secret",
		"shop: {url: 'https://a', secret_env: NONE}":                           `names the variable "NONE", which is not set`,
		"shop: {url: 'https://a', secret_env: NEW, old_secret_env: SHORT}":     "webhooks.shop.old_secret_env: the secret must be",
		"shop: {url: 'https://a', secret_env: NEW, agents: []}":                "webhooks.shop.agents is empty",
		"shop: {url: 'https://a', secret_env: NEW, agents: [Clerk]}":           `agent name "Clerk"`,
		"shop: {url: 'https://a', secret_env: NEW, timeout: 10m}":              "webhooks.shop.timeout is 600s: it must be 1s to 5m",
		"shop: {url: 'https://a', secret_env: NEW, concurrency: 0}":            "webhooks.shop.concurrency is 0: it must be 1 to 100",
		"shop: {url: 'https://a', secret_env: NEW, max_attempts: many}":        "webhooks.shop.max_attempts must be a whole number",
		"shop: {url: 'https://a', secret_env: NEW, max_age: 1s}":               "webhooks.shop.max_age is 1s: it must be 1m to 720h",
		"shop: {url: 'https://a', secret_env: NEW, allow_private: yes please}": "webhooks.shop.allow_private must be",
		"shop: https://a": "webhooks.shop must be",
	} {
		file(t, "webhooks:\n  "+text+"\n")
		_, err := config.Load(config.LoadOptions{Env: env(map[string]string{
			"NEW": signing, "SHORT": "whsec_c2hvcnQ=", "PLAIN": "t0ken-of-thirty-two-characters-xx", "URL": "https://a",
		})})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "t0ken") ||
			strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
