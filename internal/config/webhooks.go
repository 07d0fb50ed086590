package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnkeeper/internal/config/strictyaml"
)

// A Webhook is an endpoint that replies, and asks, are pushed to.
type Webhook struct {
	Name         string
	URL          Secret        `yaml:"url,url_env,url_file" needs:"" as:"endpoint" type:"text"`
	Keys         [][]byte      // signing keys: of the secret, and of the old secret if it is set
	Agents       []string      `yaml:"agents" check:"agent"` // nil: all; sorted, each once
	SubAgents    bool          `yaml:"sub_agents"`           // also replies of sub-agents to other agents
	Asks         bool          `yaml:"asks"`                 // also opened asks
	AllowPrivate bool          `yaml:"allow_private"`        // allow addresses that are not public
	Timeout      time.Duration `yaml:"timeout" in:"1s to 5m"`
	Concurrency  int           `yaml:"concurrency" in:"1 to 100"`
	MaxAttempts  int           `yaml:"max_attempts" in:"1 to 100"`
	MaxAge       time.Duration `yaml:"max_age" in:"1m to 720h"`
}

// webhookEntry is an entry of webhooks in the config file.
type webhookEntry struct {
	Webhook
	Key    []byte `yaml:"secret_env,secret_file" needs:"" as:"signing" type:"text"`
	OldKey []byte `yaml:"old_secret_env,old_secret_file" as:"signing" type:"text"`
}

// Origin returns the scheme, host and port of the URL, the only parts that may be displayed.
func (w Webhook) Origin() string {
	u, err := url.Parse(w.URL.Reveal())
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// WebhookSecretPrefix is the prefix of a signing secret.
const WebhookSecretPrefix = "whsec_"

// Limits of Standard Webhooks on a signing secret.
const (
	minSigningBytes = 24
	maxSigningBytes = 64
)

// webhook reads one webhook of the config file.
func (r *fileReader) webhook(where, name string, v *strictyaml.Node) Webhook {
	e := webhookEntry{Webhook: Webhook{Name: name, Timeout: 15 * time.Second, Concurrency: 4, MaxAttempts: 20,
		MaxAge: 72 * time.Hour}}
	r.Decode(where, v, &e)
	for _, key := range [][]byte{e.Key, e.OldKey} {
		if key != nil {
			e.Keys = append(e.Keys, key)
		}
	}
	if agents := v.Get("agents"); agents != nil && agents.Kind == strictyaml.List && len(agents.Items) == 0 {
		r.Add(agents.Line, "%sagents is empty: remove it to deliver the replies of all agents", where)
	}
	slices.Sort(e.Agents)
	e.Agents = slices.Compact(e.Agents)
	return e.Webhook
}

func (r *fileReader) endpoint(at strictyaml.Place, v *strictyaml.Node, to any) {
	address := r.credential(at, v)
	if *to.(*Secret) = address; !address.IsSet() {
		return
	}
	if at.Key != "url" {
		r.keep(address.Reveal())
	}
	if err := checkEndpoint(address.Reveal()); err != nil {
		r.Add(v.Line, "%s: %v", at.Where, err)
	}
}

// checkEndpoint checks a webhook's address. Errors do not repeat it: it may contain a token.
func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return errors.New("it must be an http or https address, such as https://example.com/replies")
	case u.User != nil || u.Fragment != "":
		return errors.New("it must not have a user, a password or #: the signature authenticates the sender")
	}
	return nil
}

// signing reads a signing secret: "whsec_" and base64. Faults do not repeat it.
func (r *fileReader) signing(at strictyaml.Place, v *strictyaml.Node, to any) {
	secret := r.secret(at, v)
	if !secret.IsSet() {
		return
	}
	text, prefixed := strings.CutPrefix(secret.Reveal(), WebhookSecretPrefix)
	r.keep(text)
	key, err := base64.StdEncoding.DecodeString(text)
	if !prefixed || err != nil || len(key) < minSigningBytes || len(key) > maxSigningBytes {
		r.missing(at, v,
			fmt.Sprintf(": the secret must be %s and %d to %d bytes in base64: \"turnctl webhooks secret\" creates one",
				WebhookSecretPrefix, minSigningBytes, maxSigningBytes))
		return
	}
	*to.(*[]byte) = key
}
