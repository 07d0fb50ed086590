package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// A Webhook is an endpoint that replies are pushed to.
type Webhook struct {
	Name         string
	URL          Secret
	Keys         [][]byte // to sign with: the secret's, and the old secret's where there is one
	Agents       []string // nil: all; sorted, each once
	SubAgents    bool     // also replies that they write for other agents
	AllowPrivate bool     // its address may be one that is not public
	Timeout      time.Duration
	Concurrency  int
	MaxAttempts  int
	MaxAge       time.Duration

	secretValues []string // that the masker must know
}

// Origin is the scheme, host and port of the URL: what may be shown of it.
func (w Webhook) Origin() string {
	u, err := url.Parse(w.URL.Reveal())
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// WebhookSecretPrefix begins every signing secret.
const WebhookSecretPrefix = "whsec_"

// The lengths of a signing secret that Standard Webhooks has.
const (
	minSigningBytes = 24
	maxSigningBytes = 64
)

func (l *loader) readWebhooks(problems *strictyaml.Problems, v *strictyaml.Node) {
	eachEntry(problems, "webhooks", v, func(name string, line int, v *strictyaml.Node) {
		if turnkeeper.CheckAgentName(name) != nil {
			problems.Add(line, "webhooks has the name %q: it must be 1 to %d of a-z 0-9 _ -, starting with a letter or digit", name, turnkeeper.MaxNameLength)
			return
		}
		r := &webhookReader{
			mappingReader: mappingReader{loader: l, Problems: problems, where: "webhooks." + name + "."},
			w:             Webhook{Name: name, Timeout: 15 * time.Second, Concurrency: 4, MaxAttempts: 20, MaxAge: 72 * time.Hour},
		}
		l.config.Webhooks[name] = r.read(v)
	})
}

// webhookReader reads one webhook of the config file.
type webhookReader struct {
	mappingReader
	w            Webhook
	urls         []string // which of the url keys are there
	secrets, old []string // and of the secret keys
}

func (r *webhookReader) read(v *strictyaml.Node) Webhook {
	r.Fields(r.where, v, keyNames(WebhookKeys), r.key)
	if v.Kind != strictyaml.Map {
		return r.w
	}
	r.one(v, r.urls, "url", true)
	r.one(v, r.secrets, "secret_env", true)
	r.one(v, r.old, "old_secret_env", false)
	return r.w
}

// one finds keys of which there must be one.
func (r *webhookReader) one(v *strictyaml.Node, keys []string, key string, needed bool) {
	switch {
	case len(keys) > 1:
		r.Add(v.Line, "%s has %s: give one of them", strings.TrimSuffix(r.where, "."), strings.Join(keys, " and "))
	case len(keys) == 0 && needed:
		r.Add(v.Line, "%s%s is missing", r.where, key)
	}
}

func (r *webhookReader) key(key string, v *strictyaml.Node) {
	w := &r.w
	switch key {
	case "url", "url_env", "url_file":
		r.urls = append(r.urls, key)
		r.url(key, v)
	case "secret_env", "secret_file":
		r.secrets = append(r.secrets, key)
		w.Keys = slices.Concat(r.secret(key, strings.TrimPrefix(key, "secret_"), v), w.Keys)
	case "old_secret_env", "old_secret_file":
		r.old = append(r.old, key)
		w.Keys = append(w.Keys, r.secret(key, strings.TrimPrefix(key, "old_secret_"), v)...)
	case "agents":
		w.Agents = r.agents(key, v)
	case "sub_agents":
		w.SubAgents = *r.boolean(key, v)
	case "allow_private":
		w.AllowPrivate = *r.boolean(key, v)
	case "timeout":
		w.Timeout = r.within(key, v, time.Second, 5*time.Minute)
	case "concurrency":
		w.Concurrency = r.number(key, v, 100)
	case "max_attempts":
		w.MaxAttempts = r.number(key, v, 100)
	case "max_age":
		w.MaxAge = r.within(key, v, time.Minute, month)
	}
}

func (r *webhookReader) url(key string, v *strictyaml.Node) {
	r.w.URL = r.credential(key, strings.TrimPrefix(strings.TrimPrefix(key, "url"), "_"), v)
	if !r.w.URL.IsSet() {
		return
	}
	if key != "url" {
		r.w.secretValues = append(r.w.secretValues, r.w.URL.Reveal())
	}
	if err := checkEndpoint(r.w.URL.Reveal()); err != nil {
		r.Add(v.Line, "%s%s: %v", r.where, key, err)
	}
}

// checkEndpoint does not repeat the address: it may hold a token.
func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return errors.New("it must be an http or https address, such as https://example.com/replies")
	case u.User != nil || u.Fragment != "":
		return errors.New("it must not hold a user, a password or #: the signature tells the receiver who calls")
	}
	return nil
}

// secret reads a signing secret: "whsec_" and base64. The faults do not repeat it.
func (r *webhookReader) secret(key, by string, v *strictyaml.Node) [][]byte {
	secret := r.credential(key, by, v)
	if !secret.IsSet() {
		return nil
	}
	r.w.secretValues = append(r.w.secretValues, secret.Reveal(), strings.TrimPrefix(secret.Reveal(), WebhookSecretPrefix))
	text, prefixed := strings.CutPrefix(secret.Reveal(), WebhookSecretPrefix)
	signing, err := base64.StdEncoding.DecodeString(text)
	if !prefixed || err != nil || len(signing) < minSigningBytes || len(signing) > maxSigningBytes {
		r.missing(v, key, fmt.Sprintf(": the secret must be %s and %d to %d bytes in base64: \"turnctl webhooks secret\" makes one",
			WebhookSecretPrefix, minSigningBytes, maxSigningBytes))
		return nil
	}
	return [][]byte{signing}
}

func (r *webhookReader) agents(key string, v *strictyaml.Node) []string {
	names, err := v.AsTexts()
	switch {
	case err != nil:
		r.fault(v, key, err)
	case len(names) == 0:
		r.Add(v.Line, "%s%s is empty: leave it out for the replies of all agents", r.where, key)
	}
	for _, name := range names {
		if err := turnkeeper.CheckAgentName(name); err != nil {
			r.Add(v.Line, "%s%s: %v", r.where, key, err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *webhookReader) within(key string, v *strictyaml.Node, low, high time.Duration) time.Duration {
	value, err := v.AsDuration()
	switch {
	case err != nil:
		r.fault(v, key, err)
	case value < low || value > high:
		r.Add(v.Line, "%s%s is %s: it must be %s to %s", r.where, key, strictyaml.FormatDuration(value), strictyaml.FormatDuration(low), strictyaml.FormatDuration(high))
	}
	return value
}
