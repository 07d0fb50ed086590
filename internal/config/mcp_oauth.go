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

// MCPLoginKeyBytes is the length of the key for logins.
const MCPLoginKeyBytes = 32

// An MCPOAuth says how tokens for an MCP server are had.
type MCPOAuth struct {
	Grant             string        `yaml:"grant" needs:"" of:"client_credentials, authorization_code, enterprise"`
	ClientID          string        `yaml:"client_id" check:"not empty"` // empty: the worker registers itself
	ClientSecret      Secret        `yaml:"client_secret" as:"reference"`
	PrivateKey        crypto.Signer `yaml:"private_key" as:"key" type:"mapping"`   // nil: ClientSecret, or a public client
	KeyID             string        `yaml:"key_id" check:"not empty"`              // of PrivateKey; empty: none is said
	ClientMetadataURL string        `yaml:"client_metadata_url" check:"with path"` // empty: none
	Issuer            string        `yaml:"issuer" check:"https"`                  // the only one; empty: any
	TokenEndpoint     string        `yaml:"token_endpoint" check:"https"`          // empty: it is looked up
	Scopes            []string      `yaml:"scopes" check:"scope"`                  // nil: what the server asks for
	RedirectPort      int           `yaml:"redirect_port" in:"0 to 65535"`         // 0: any
	Identity          MCPIdentity   `yaml:"identity"`                              // of GrantEnterprise
}

// An MCPIdentity is what an identity provider knows a worker by.
type MCPIdentity struct {
	TokenEndpoint string  `yaml:"token_endpoint" needs:"" check:"https"`
	ClientID      string  `yaml:"client_id" needs:"" check:"not empty"`
	ClientSecret  Secret  `yaml:"client_secret" as:"reference"`
	IDToken       idToken `yaml:"token" needs:"" as:"id token"`
}

type idToken struct {
	value Secret // not set: file
	file  string
}

// Token is the ID token as it is now.
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

// mcpLoginKey reads the key that logins are sealed with. The faults do not repeat
// it.
func (r *fileReader) mcpLoginKey(at strictyaml.Place, v *strictyaml.Node) {
	r.loginKeyNamed = true
	key := r.reference(at, v)
	if !key.IsSet() {
		return
	}
	if bytes, err := base64.StdEncoding.DecodeString(key.Reveal()); err != nil || len(bytes) != MCPLoginKeyBytes {
		r.missing(at, v, fmt.Sprintf(" must be %d bytes in base64: \"turnctl mcp key\" makes one", MCPLoginKeyBytes))
		return
	}
	r.config.MCPLoginKey = key
}

// checkMCPLogins finds servers that somebody would have to log in to, with nowhere to
// keep that.
func (l *loader) checkMCPLogins() {
	if l.WithoutSecrets && l.loginKeyNamed {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.config.MCPServers)) {
		s := l.config.MCPServers[name]
		if s.OAuth != nil && s.OAuth.Grant == GrantAuthorizationCode && !l.config.MCPLoginKey.IsSet() {
			l.add("mcp_servers.%s.oauth.grant is authorization_code, and there is no mcp_login_key to seal the login with: "+
				"make one with \"turnctl mcp key\", and name its variable or file in the config file (mcp_login_key: {env: VARIABLE})", name)
		}
	}
}

// checkOAuth finds what is wrong only in view of the grant, or of the server.
func (r *fileReader) checkOAuth(where string, v *strictyaml.Node, server MCPServer) {
	if v.Kind != strictyaml.Map {
		return
	}
	for header := range server.Headers {
		if http.CanonicalHeaderKey(header) == "Authorization" {
			r.Add(v.Line, "%sheaders.Authorization is set by oauth: take one of them out", where)
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
			r.Add(v.Line, "%s.%s is missing: the grant %s needs it", where, key, o.Grant)
		}
	}
	for _, key := range refuses {
		if given(key) {
			r.Add(v.Line, "%s.%s is not for the grant %s", where, key, o.Grant)
		}
	}
	secret, key := given("client_secret"), given("private_key")
	switch {
	case secret && key:
		r.Add(v.Line, "%s has client_secret and private_key: give one of them", where)
	case !secret && !key && o.Grant == GrantClientCredentials:
		r.Add(v.Line, "%s has neither client_secret nor private_key: the grant %s needs one", where, o.Grant)
	case secret && o.ClientID == "" && o.Grant == GrantAuthorizationCode:
		r.Add(v.Line, "%s.client_secret is that of a client_id, which is missing", where)
	}
}

// checkHTTPS accepts an https address, and an http address of this machine.
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
	if scope == "" || strings.ContainsFunc(scope, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
		return fmt.Sprintf(" holds %q: a scope has no spaces, quotes or backslashes", scope)
	}
	return ""
}

// privateKey reads a key in PEM. The faults do not repeat it.
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
			text = strings.ReplaceAll(text, `\n`, "\n") // as files of variables write it
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
		path, _ := file.AsText() // reference has read it
		*to.(*idToken) = idToken{file: path}
		return
	}
	*to.(*idToken) = idToken{value: value}
}

// pemSecrets are the lines of a key, of which each tells a part.
func pemSecrets(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) > 16 && !strings.HasPrefix(line, "-----") {
			lines = append(lines, line)
		}
	}
	return lines
}

var errKeyForm = errors.New("it must hold a private key in PEM without a password: RSA, Ed25519, or EC on P-256, P-384 or P-521")

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
