package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"slices"
	"strings"
	"testing"

	"turnkeeper/internal/config"
)

func keyInPEM(t *testing.T, curve elliptic.Curve) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

var loginKey = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", config.MCPLoginKeyBytes)))

func TestOAuthOfMCPServers(t *testing.T) {
	file(t, `
mcp_login_key: {env: LOGIN_KEY}
mcp_servers:
  secret:
    url: https://a.example/mcp
    oauth: {grant: client_credentials, client_id: robot, client_secret: {env: ROBOT_SECRET}, issuer: "https://login.example", scopes: [a, b]}
  key:
    url: https://b.example/mcp
    oauth: {grant: client_credentials, client_id: robot, private_key: {env: ROBOT_KEY}, key_id: k1, token_endpoint: "https://login.example/token"}
  person:
    url: https://c.example/mcp
    oauth: {grant: authorization_code, client_metadata_url: "https://me.example/client.json", redirect_port: 8123}
  vouched:
    url: https://d.example/mcp
    oauth:
      grant: enterprise
      client_id: robot
      identity: {token_endpoint: "http://127.0.0.1:9/token", client_id: me, token: {file: identity.txt}}
`)
	if err := os.WriteFile("identity.txt", []byte("the-first-identity\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pemText := keyInPEM(t, elliptic.P256())
	got, err := config.Load(config.LoadOptions{Env: env(map[string]string{
		"LOGIN_KEY": loginKey, "ROBOT_SECRET": "robot-secret-1", "ROBOT_KEY": strings.ReplaceAll(pemText, "\n", `\n`),
	})})
	if err != nil {
		t.Fatal(err)
	}
	secret, key := got.MCPServers["secret"].OAuth, got.MCPServers["key"].OAuth
	if secret.ClientSecret.Reveal() != "robot-secret-1" || secret.Issuer != "https://login.example" ||
		!slices.Equal(secret.Scopes, []string{"a", "b"}) {
		t.Errorf("secret: %+v", secret)
	}
	if key.PrivateKey == nil || key.KeyID != "k1" || key.TokenEndpoint != "https://login.example/token" {
		t.Errorf("key: %+v", key)
	}
	if person := got.MCPServers["person"].OAuth; person.RedirectPort != 8123 || person.ClientID != "" {
		t.Errorf("person: %+v", person)
	}
	if err := os.WriteFile("identity.txt", []byte("the-second-identity\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if token, err := got.MCPServers["vouched"].OAuth.Identity.Token(); err != nil ||
		token.Reveal() != "the-second-identity" {
		t.Errorf("the ID token is not that of now: %s, %v", token.Reveal(), err)
	}
	for _, want := range append(strings.Split(strings.TrimSpace(pemText), "\n")[1:2], "robot-secret-1", loginKey,
		"the-first-identity") {
		if !slices.Contains(got.Secrets(), want) {
			t.Errorf("no masker would know %q", want)
		}
	}
	masker := got.Masker()
	got.Learn("a-token-of-later")
	if text := masker.String("a-token-of-later robot-secret-1"); text != "[redacted] [redacted]" {
		t.Errorf("masked: %s", text)
	}
}

func TestFaultsOfOAuth(t *testing.T) {
	const robot = "grant: client_credentials, client_id: r, client_secret: {env: S}"
	for name, c := range map[string]struct{ oauth, want string }{
		"no grant": {"{client_id: r}", "mcp_servers.s.oauth.grant is missing"},
		"another grant": {"{grant: password}",
			"grant is \"password\": it must be one of client_credentials, authorization_code, enterprise"},
		"nothing that proves": {"{grant: client_credentials, client_id: r}", "neither client_secret nor private_key"},
		"no client": {"{grant: client_credentials, client_secret: {env: S}}",
			"client_id is missing: the grant client_credentials requires it"},
		"two proofs": {"{" + robot + ", private_key: {env: KEY}}", "has client_secret and private_key"},
		"a key of nothing": {"{grant: client_credentials, client_id: r, private_key: {env: S}}",
			"it must be an unencrypted private key in PEM"},
		"a key that is weak": {"{grant: client_credentials, client_id: r, private_key: {env: WEAK}}",
			"it must be an unencrypted private key in PEM"},
		"no secret there": {"{grant: client_credentials, client_id: r, client_secret: {env: NONE}}",
			`names the variable "NONE", which is not set`},
		"not for the grant": {"{" + robot + ", redirect_port: 80}",
			"redirect_port cannot be used with the grant client_credentials"},
		"no safe address": {"{" + robot + ", issuer: \"http://login.example\"}", "issuer must be an https address"},
		"no port": {"{grant: authorization_code, redirect_port: 65536}",
			"redirect_port is 65536: it must be 0 to 65535"},
		"no scope": {"{" + robot + ", scopes: [\"a b\"]}", "a scope must not have spaces"},
		"no identity": {"{grant: enterprise, client_id: r}",
			"identity is missing: the grant enterprise requires it"},
		"half an identity": {"{grant: enterprise, client_id: r, identity: {client_id: x, token: {env: S}}}",
			"identity.token_endpoint is missing"},
		"no key for logins": {"{grant: authorization_code}",
			`which requires mcp_login_key to encrypt the login: create a key with "turnctl mcp key"`},
		"unknown": {"{" + robot + ", clientid: x}", `unknown key "mcp_servers.s.oauth.clientid"`},
	} {
		t.Run(name, func(t *testing.T) {
			file(t, "mcp_servers:\n  s:\n    url: https://a.example/mcp\n    oauth: "+c.oauth+"\n")
			_, err := config.Load(config.LoadOptions{Env: env(map[string]string{
				"S": "hush-secret-1", "KEY": keyInPEM(t, elliptic.P256()), "WEAK": keyInPEM(t, elliptic.P224()),
			})})
			if got := message(err); !strings.Contains(got, c.want) || strings.Contains(got, "hush") ||
				strings.Contains(got, "PRIVATE KEY-") {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for text, want := range map[string]string{
		"mcp_servers: {s: {url: \"https://a.example/mcp\", headers: {authorization: x-token-x}, oauth: {" + robot +
			"}}}": "headers.Authorization is set by oauth",
		"mcp_servers: {s: {command: [x], oauth: {" + robot +
			"}}}": "oauth requires url",
		"mcp_login_key: {env: S}": "mcp_login_key must be 32 bytes in base64",
		"mcp_login_key: text":     "mcp_login_key",
	} {
		file(t, text)
		if _, err := config.Load(config.LoadOptions{
			Env: env(map[string]string{"S": "hush-secret-1"})}); !strings.Contains(message(err), want) ||
			strings.Contains(message(err), "hush") {
			t.Errorf("%s: %s, want %s", text, message(err), want)
		}
	}
}
