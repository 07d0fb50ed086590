package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/config"
)

// around holds a secret in an unexported field, where fmt cannot call its methods.
type around struct{ hidden config.Secret }

func TestSecretsArePrintedNowhere(t *testing.T) {
	const hush = "hush-hush-hush"
	secret := config.NewSecret(hush)
	database, err := config.NewDatabaseURL("postgres://bob:" + hush + "@db/x?password=" + hush)
	if err != nil {
		t.Fatal(err)
	}
	words, err := config.NewDatabaseURL(`host=db password='hush-hush-hush' sslpassword = hush-hush-hush user=bob`)
	if err != nil {
		t.Fatal(err)
	}
	whole := config.Default()
	whole.DatabaseURL = database
	whole.Providers["p"] = config.Provider{Name: "p", APIKey: secret, Headers: map[string]config.Secret{"a": secret}}
	for name, value := range map[string]any{
		"secret": secret, "pointer": &secret, "within": around{secret}, "list": []config.Secret{secret},
		"URL": database, "words": words, "config": whole, "config itself": *whole,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
				fmt.Fprintf(&out, verb+"\n", value)
			}
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(text)
			slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", value)
			slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", value)
			core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out),
				zap.DebugLevel)
			zap.New(core).Info("m", zap.Any("any", value), zap.Reflect("reflect", value))
			for _, form := range []string{hush, fmt.Sprintf("%x", hush), fmt.Sprintf("%X", hush)} {
				if strings.Contains(out.String(), form) {
					t.Errorf("printed in\n%s", out.String())
				}
			}
		})
	}
	if got := secret.String() + secret.Reveal(); got != "[redacted]"+hush {
		t.Errorf("got %s", got)
	}
	if empty := (config.Secret{}); empty.String() != "" || empty.IsSet() || empty.Reveal() != "" {
		t.Errorf("the zero value is not empty: %q", empty)
	}
}

func TestDatabaseURLString(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://bob:secret@db:5432/x?sslmode=disable": "postgres://bob:[redacted]@db:5432/x?sslmode=disable",
		"postgresql:///x?host=/run&password=secret":       "postgresql:///x?host=%2Frun&password=[redacted]",
		"postgres://db/x":                       "postgres://db/x",
		"host=db password=secret dbname=x":      "host=db password=[redacted] dbname=x",
		`host=db password='se\'cr et' dbname=x`: "host=db password=[redacted] dbname=x",
		"":                                      "",
	} {
		d, err := config.NewDatabaseURL(in)
		if err != nil {
			t.Fatal(err)
		}
		if d.String() != want || d.Reveal() != in {
			t.Errorf("%s: got %s, want %s", in, d, want)
		}
	}
	for _, in := range []string{"mysql://u:secret@h", "secret", "postgres://u:sec ret%zz@h"} {
		_, err := config.NewDatabaseURL(in)
		if err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// TestSecretsOfADatabaseURL checks which parts of a connection string maskers learn, as written and as meant.
func TestSecretsOfADatabaseURL(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://bob:plain@db/x":                         "plain",
		"postgres://bob:p%40ss@db/x@y":                      "p%40ss p@ss",
		"postgres://bob:p:q@db/x":                           "p:q",
		"postgres://bob@db/x:y@z":                           "",
		"postgres://db/x?a=b:c@d":                           "",
		"postgres://bob:a@db?password=b&sslpassword=c%20d":  "a b c d",
		"postgresql://bob:a@db#b@c":                         "a",
		"host=db user=bob password=one sslpassword = 'two'": "one two",
		`password='it\'s' host=db`:                          `it's it\'s`,
		`host=db password=a\ b dbname=x`:                    `a b a\ b`,
		"host=db user=bob":                                  "",
	} {
		url, err := config.NewDatabaseURL(in)
		if err != nil {
			t.Fatal(err)
		}
		cfg := config.Default()
		cfg.DatabaseURL = url
		if got := strings.Join(cfg.Secrets(), " "); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// TestTokensOfHeadersAreMasked checks what maskers know of the headers and parameters of each mapping that has some:
// the whole value, and the token alone, as in the error of a service that quotes it. It does not matter where the value
// comes from, how its scheme is called and how many spaces follow that.
func TestTokensOfHeadersAreMasked(t *testing.T) {
	file(t, `
providers:
  p:
    base_url: http://h/v1
    headers: {Authorization: Bearer token-a, X-Key: "ApiKey   token-b", cookie: token-c, X-Title: Title plain-1}
    query: {sig: {env: SIG}, auth: Bearer token-e, region: plain-2}
mcp_servers:
  s:
    url: https://h/mcp
    headers: {proxy-authorization: "bearer token-f ", X-A: {file: header.txt}, X-B: {env: HEADER}, X-C: Any plain-3}
`)
	if err := os.WriteFile("header.txt", []byte("Basic token-g\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"SIG": "HMAC token-d", "HEADER": "  Token  token-h and more\n",
		"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20token-i,x-key=%20Basic%20%20token-j"}
	got, err := config.Load(config.LoadOptions{Env: env(values)})
	if err != nil {
		t.Fatal(err)
	}
	if whole := got.Providers["p"].Headers["X-Key"].Reveal(); whole != "ApiKey   token-b" {
		t.Errorf("the header is sent as %q", whole)
	}
	masker := got.Masker()
	core, logged := observer.New(zap.InfoLevel)
	log := zap.New(masker.WrapCore(core))
	for _, letter := range "abcdefghij" {
		token := "token-" + string(letter)
		if letter == 'h' {
			token += " and more"
		}
		text := "there is no key " + token + "."
		log.Info(text, zap.String("key", token), zap.Error(errors.New(text)))
		line := logged.TakeAll()[0]
		for where, seen := range map[string]string{
			"a text": masker.String(text), "an error": masker.Error(errors.New(text)).Error(),
			"a log": line.Message + fmt.Sprint(line.ContextMap()),
		} {
			if strings.Contains(seen, "token-") || !strings.Contains(seen, "there is no key [redacted].") {
				t.Errorf("%s is masked in %s as %s", token, where, seen)
			}
		}
	}
	if text := masker.String("plain-1 plain-2 plain-3"); text != "plain-1 plain-2 plain-3" {
		t.Errorf("what is not secret is masked: %s", text)
	}
}
