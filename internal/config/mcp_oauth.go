package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"turnkeeper/internal/config/strictyaml"
)

// Grants of MCPOAuth.
const (
	GrantClientCredentials = "client_credentials"
	GrantAuthorizationCode = "authorization_code"
	GrantEnterprise        = "enterprise"
)

// MCPLoginKeyBytes is the length of MCPLoginKey in bytes.
const MCPLoginKeyBytes = 32

// An MCPOAuth says how to get tokens for an MCP server.
type MCPOAuth struct {
	Grant        string `yaml:"grant" needs:"" of:"client_credentials, authorization_code, enterprise"`
	ClientID     string `yaml:"client_id" check:"not empty"` // empty: the worker registers itself
	ClientSecret Secret `yaml:"client_secret" as:"reference"`
	// nil: ClientSecret, or a public client
	PrivateKey        crypto.Signer `yaml:"private_key" as:"key" type:"mapping"`
	KeyID             string        `yaml:"key_id" check:"not empty"`              // of PrivateKey; empty: none
	ClientMetadataURL string        `yaml:"client_metadata_url" check:"with path"` // empty: none
	Issuer            string        `yaml:"issuer" check:"https"`                  // the only issuer; empty: any
	TokenEndpoint     string        `yaml:"token_endpoint" check:"https"`          // empty: discovered
	Scopes            []string      `yaml:"scopes" check:"scope"`                  // nil: those that the server names
	RedirectPort      int           `yaml:"redirect_port" in:"0 to 65535"`         // 0: any
	Identity          MCPIdentity   `yaml:"identity"`                              // for GrantEnterprise
}

// An MCPIdentity holds a worker's credentials at an identity provider.
type MCPIdentity struct {
	TokenEndpoint string  `yaml:"token_endpoint" needs:"" check:"https"`
	ClientID      string  `yaml:"client_id" needs:"" check:"not empty"`
	ClientSecret  Secret  `yaml:"client_secret" as:"reference"`
	IDToken       idToken `yaml:"token" needs:"" as:"id token"`
}

type idToken struct {
	value Secret // not set: read file
	file  string
}

// Token returns the current ID token. A file is read on each call.
func (i MCPIdentity) Token() (Secret, error) {
	if i.IDToken.value.IsSet() {
		return i.IDToken.value, nil
	}
	text, err := readSecret(i.IDToken.file)
	if err != nil {
		return Secret{}, err
	}
	return newCredential(text)
}

// mcpLoginKey reads the key that encrypts logins. Faults do not repeat it.
func (r *fileReader) mcpLoginKey(at strictyaml.Place, v *strictyaml.Node) {
	r.loginKeyNamed = true
	key := r.reference(at, v)
	if !key.IsSet() {
		return
	}
	if bytes, err := base64.StdEncoding.DecodeString(key.Reveal()); err != nil || len(bytes) != MCPLoginKeyBytes {
		r.missing(at, v, fmt.Sprintf(" must be %d bytes in base64: \"turnctl mcp key\" creates one", MCPLoginKeyBytes))
		return
	}
	r.config.MCPLoginKey = key
}

// checkMCPLogins checks that servers with logins have a key to encrypt them.
func (l *loader) checkMCPLogins() {
	if l.WithoutSecrets && l.loginKeyNamed {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.config.MCPServers)) {
		s := l.config.MCPServers[name]
		if s.OAuth != nil && s.OAuth.Grant == GrantAuthorizationCode && !l.config.MCPLoginKey.IsSet() {
			l.add(
				"mcp_servers.%s.oauth.grant is authorization_code, which requires mcp_login_key to encrypt the login: "+
					"create a key with \"turnctl mcp key\", and set its variable or file in the config file (mcp_login_key: {env: VARIABLE})", name)
		}
	}
}

// checkOAuth checks keys against the grant and the server.
func (r *fileReader) checkOAuth(where string, v *strictyaml.Node, server MCPServer) {
	if v.Kind != strictyaml.Map {
		return
	}
	for header := range server.Headers {
		if http.CanonicalHeaderKey(header) == "Authorization" {
			r.Add(v.Line, "%sheaders.Authorization is set by oauth: remove one of them", where)
		}
	}
	where += "oauth"
	o, given := server.OAuth, func(key string) bool { return v.Get(key) != nil }
	wants, refuses := map[string][]string{
		GrantClientCredentials: {"client_id"}, GrantEnterprise: {"client_id", "identity"},
	}[o.Grant], map[string][]string{
		GrantClientCredentials: {"client_metadata_url", "redirect_port", "identity"},
		GrantAuthorizationCode: {"private_key", "key_id", "token_endpoint", "identity"},
		GrantEnterprise:        {"client_metadata_url", "redirect_port", "token_endpoint"},
	}[o.Grant]
	for _, key := range wants {
		if !given(key) {
			r.Add(v.Line, "%s.%s is missing: the grant %s requires it", where, key, o.Grant)
		}
	}
	for _, key := range refuses {
		if given(key) {
			r.Add(v.Line, "%s.%s cannot be used with the grant %s", where, key, o.Grant)
		}
	}
	secret, key := given("client_secret"), given("private_key")
	switch {
	case secret && key:
		r.Add(v.Line, "%s has client_secret and private_key: set only one of them", where)
	case !secret && !key && o.Grant == GrantClientCredentials:
		r.Add(v.Line, "%s has neither client_secret nor private_key: the grant %s requires one", where, o.Grant)
	case secret && o.ClientID == "" && o.Grant == GrantAuthorizationCode:
		r.Add(v.Line, "%s.client_secret requires client_id, which is missing", where)
	}
}

// checkHTTPS accepts an https address, or an http address on loopback.
func checkHTTPS(text string) string {
	u, err := url.Parse(text)
	good := err == nil && u.Hostname() != "" && u.User == nil && u.Fragment == "" && u.RawQuery == ""
	if good && u.Scheme == "http" {
		ip := net.ParseIP(u.Hostname())
		good = u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	} else if good {
		good = u.Scheme == "https"
	}
	if !good {
		return " must be an https address without user, ? and #"
	}
	return ""
}

func checkWithPath(text string) string {
	wrong := checkHTTPS(text)
	if u, err := url.Parse(text); wrong == "" && err == nil && strings.Trim(u.Path, "/") == "" {
		return " must have a path"
	}
	return wrong
}

func checkScope(scope string) string {
	if scope == "" || strings.ContainsFunc(scope, func(c rune) bool {
		return c <= ' ' || c > '~' || c == '"' || c == '\\'
	}) {
		return fmt.Sprintf(" has %q: a scope must not have spaces, quotes or backslashes", scope)
	}
	return ""
}

// privateKey reads a key in PEM. Faults do not repeat it.
func (r *fileReader) privateKey(at strictyaml.Place, v *strictyaml.Node, to any) {
	r.byReference(at, v, func(at strictyaml.Place, v *strictyaml.Node) {
		place, err := v.AsText()
		if err != nil {
			r.Add(v.Line, "%s %v", at.Where, err)
			return
		}
		text := ""
		if at.Key == "env" {
			if text, _ = r.env(place); text == "" {
				r.missing(at, v, " must be the name of a variable that is set")
				return
			}
			text = strings.ReplaceAll(text, `\n`, "\n") // .env files write newlines so
		} else if text, err = readSecret(place); err != nil {
			r.missing(at, v, fmt.Sprintf(" names the file %q: it cannot be read: %v", place, err))
			return
		}
		r.keep(pemSecrets(text)...)
		key, err := signerOf(text)
		if err != nil {
			r.missing(at, v, fmt.Sprintf(": %v", err))
		}
		*to.(*crypto.Signer) = key
	})
}

func (r *fileReader) idToken(at strictyaml.Place, v *strictyaml.Node, to any) {
	value := r.reference(at, v)
	if file := v.Get("file"); file != nil {
		path, _ := file.AsText() // checked by reference
		*to.(*idToken) = idToken{file: path}
		return
	}
	*to.(*idToken) = idToken{value: value}
}

// pemSecrets returns the lines of a key for the masker: each line reveals a part.
func pemSecrets(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) > 16 && !strings.HasPrefix(line, "-----") {
			lines = append(lines, line)
		}
	}
	return lines
}

var errKeyForm = errors.New(
	"it must be an unencrypted private key in PEM: RSA, Ed25519, or EC on P-256, P-384 or P-521")

func signerOf(text string) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errKeyForm
	}
	var key any
	var err error
	switch block.Type {
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, errKeyForm
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return k, nil
	case ed25519.PrivateKey:
		return k, nil
	case *ecdsa.PrivateKey:
		if k.Curve.Params().BitSize >= 256 {
			return k, nil
		}
	}
	return nil, errKeyForm
}
