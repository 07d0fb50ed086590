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
	Grant             string
	ClientID          string // empty: the worker registers itself
	ClientSecret      Secret
	PrivateKey        crypto.Signer // nil: ClientSecret, or a public client
	KeyID             string        // of PrivateKey; empty: none is said
	ClientMetadataURL string        // empty: none
	Issuer            string        // the only one; empty: any
	TokenEndpoint     string        // empty: it is looked up
	Scopes            []string      // nil: what the server asks for
	RedirectPort      int           // 0: any
	Identity          MCPIdentity   // of GrantEnterprise
}

// An MCPIdentity is what an identity provider knows a worker by.
type MCPIdentity struct {
	TokenEndpoint string
	ClientID      string
	ClientSecret  Secret

	token Secret // not set: file
	file  string
}

// Token is the ID token as it is now.
func (i MCPIdentity) Token() (Secret, error) {
	if i.token.IsSet() {
		return i.token, nil
	}
	text, err := readSecret(i.file)
	if err != nil {
		return Secret{}, err
	}
	return newCredential(text)
}

// readMCPLoginKey reads the key that logins are sealed with. The faults do not repeat
// it.
func (l *loader) readMCPLoginKey(problems *strictyaml.Problems, v *strictyaml.Node) {
	l.loginKeyNamed = true
	r := &mappingReader{loader: l, Problems: problems}
	r.reference("mcp_login_key", v, func(key Secret) {
		if !key.IsSet() {
			return
		}
		if bytes, err := base64.StdEncoding.DecodeString(key.Reveal()); err != nil || len(bytes) != MCPLoginKeyBytes {
			r.missing(v, "mcp_login_key", fmt.Sprintf(" must be %d bytes in base64: \"turnctl mcp key\" makes one", MCPLoginKeyBytes))
			return
		}
		l.config.MCPLoginKey = key
	})
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

func (r *mcpReader) hasHeader(name string) bool {
	for header := range r.server.Headers {
		if http.CanonicalHeaderKey(header) == name {
			return true
		}
	}
	return false
}

// oauthReader reads oauth of one server.
type oauthReader struct {
	*mcpReader
	o     MCPOAuth
	given []string
}

func (r *mcpReader) oauth(key string, v *strictyaml.Node) *MCPOAuth {
	o := &oauthReader{mcpReader: r}
	r.Fields(r.where+key+".", v, keyNames(MCPOAuthKeys), func(one string, v *strictyaml.Node) {
		o.given = append(o.given, one)
		o.key(key+"."+one, one, v)
	})
	if v.Kind == strictyaml.Map {
		o.check(v, r.where+key)
	}
	return &o.o
}

func (r *oauthReader) key(label, key string, v *strictyaml.Node) {
	o := &r.o
	switch key {
	case "grant":
		o.Grant = r.choice(label, v, GrantClientCredentials, GrantAuthorizationCode, GrantEnterprise)
	case "client_id":
		o.ClientID = r.notEmpty(label, v)
	case "client_secret":
		r.secret(label, v, &o.ClientSecret)
	case "private_key":
		o.PrivateKey = r.privateKey(label, v)
	case "key_id":
		o.KeyID = r.notEmpty(label, v)
	case "client_metadata_url":
		if o.ClientMetadataURL = r.safeURL(label, v); strings.Trim(pathOf(o.ClientMetadataURL), "/") == "" {
			r.Add(v.Line, "%s%s must have a path", r.where, label)
		}
	case "issuer":
		o.Issuer = r.safeURL(label, v)
	case "token_endpoint":
		o.TokenEndpoint = r.safeURL(label, v)
	case "scopes":
		o.Scopes = r.scopes(label, v)
	case "redirect_port":
		o.RedirectPort = r.port(label, v)
	case "identity":
		o.Identity = r.identity(label, v)
	}
}

// check finds what is wrong only in view of the grant.
func (r *oauthReader) check(v *strictyaml.Node, where string) {
	wants, refuses := map[string][]string{
		GrantClientCredentials: {"client_id"}, GrantEnterprise: {"client_id", "identity"},
	}[r.o.Grant], map[string][]string{
		GrantClientCredentials: {"client_metadata_url", "redirect_port", "identity"},
		GrantAuthorizationCode: {"private_key", "key_id", "token_endpoint", "identity"},
		GrantEnterprise:        {"client_metadata_url", "redirect_port", "token_endpoint"},
	}[r.o.Grant]
	if !slices.Contains(r.given, "grant") {
		r.Add(v.Line, "%s.grant is missing", where)
	}
	for _, key := range wants {
		if !slices.Contains(r.given, key) {
			r.Add(v.Line, "%s.%s is missing: the grant %s needs it", where, key, r.o.Grant)
		}
	}
	for _, key := range refuses {
		if slices.Contains(r.given, key) {
			r.Add(v.Line, "%s.%s is not for the grant %s", where, key, r.o.Grant)
		}
	}
	secret, key := slices.Contains(r.given, "client_secret"), slices.Contains(r.given, "private_key")
	switch {
	case secret && key:
		r.Add(v.Line, "%s has client_secret and private_key: give one of them", where)
	case !secret && !key && r.o.Grant == GrantClientCredentials:
		r.Add(v.Line, "%s has neither client_secret nor private_key: the grant %s needs one", where, r.o.Grant)
	case secret && r.o.ClientID == "" && r.o.Grant == GrantAuthorizationCode:
		r.Add(v.Line, "%s.client_secret is that of a client_id, which is missing", where)
	}
}

func (r *oauthReader) secret(label string, v *strictyaml.Node, to *Secret) {
	r.reference(label, v, func(value Secret) {
		*to = value
		r.server.secretValues = append(r.server.secretValues, value.Reveal())
	})
}

// safeURL is an https address, or an http address of this machine.
func (r *oauthReader) safeURL(label string, v *strictyaml.Node) string {
	text := r.notEmpty(label, v)
	u, err := url.Parse(text)
	good := err == nil && u.Hostname() != "" && u.User == nil && u.Fragment == "" && u.RawQuery == ""
	if good && u.Scheme == "http" {
		ip := net.ParseIP(u.Hostname())
		good = u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	} else if good {
		good = u.Scheme == "https"
	}
	if !good && text != "" {
		r.Add(v.Line, "%s%s must be an https address without user, ? and #", r.where, label)
	}
	return text
}

func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Path
}

func (r *oauthReader) scopes(label string, v *strictyaml.Node) []string {
	scopes, err := v.AsTexts()
	if err != nil {
		r.fault(v, label, err)
	}
	for i, scope := range scopes {
		if scope == "" || strings.ContainsFunc(scope, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
			r.Add(v.Items[i].Line, "%s%s holds %q: a scope has no spaces, quotes or backslashes", r.where, label, scope)
		}
	}
	return scopes
}

func (r *oauthReader) port(label string, v *strictyaml.Node) int {
	n, err := v.AsInt()
	switch {
	case err != nil:
		r.fault(v, label, err)
	case n < 0 || n > 65535:
		r.Add(v.Line, "%s%s is %d: it must be 0 to 65535", r.where, label, n)
	}
	return int(n)
}

// privateKey reads a key in PEM. The faults do not repeat it.
func (r *oauthReader) privateKey(label string, v *strictyaml.Node) (key crypto.Signer) {
	r.Fields(r.where+label+".", v, []string{"env", "file"}, func(by string, v *strictyaml.Node) {
		place, err := v.AsText()
		if err != nil {
			r.fault(v, label+"."+by, err)
			return
		}
		text := ""
		if by == "env" {
			if text, _ = r.loader.env(place); text == "" {
				r.missing(v, label+".env", " must be the name of a variable that is set")
				return
			}
			text = strings.ReplaceAll(text, `\n`, "\n") // as files of variables write it
		} else if text, err = readSecret(place); err != nil {
			r.missing(v, label+".file", fmt.Sprintf(" names the file %q: it cannot be read: %v", place, err))
			return
		}
		r.server.secretValues = append(r.server.secretValues, pemSecrets(text)...)
		if key, err = signerOf(text); err != nil {
			r.missing(v, label+"."+by, fmt.Sprintf(": %v", err))
		}
	})
	if len(v.Fields) != 1 {
		r.Add(v.Line, "%s%s must have one of env and file", r.where, label)
	}
	return key
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

func (r *oauthReader) identity(label string, v *strictyaml.Node) (id MCPIdentity) {
	var given []string
	r.Fields(r.where+label+".", v, keyNames(MCPIdentityKeys), func(key string, v *strictyaml.Node) {
		given = append(given, key)
		one := label + "." + key
		switch key {
		case "token_endpoint":
			id.TokenEndpoint = r.safeURL(one, v)
		case "client_id":
			id.ClientID = r.notEmpty(one, v)
		case "client_secret":
			r.secret(one, v, &id.ClientSecret)
		case "token":
			r.secret(one, v, &id.token)
			if len(v.Fields) == 1 && v.Fields[0].Key == "file" {
				id.file, _ = v.Fields[0].Value.AsText() // reference has read it
				id.token = Secret{}
			}
		}
	})
	for _, key := range []string{"token_endpoint", "client_id", "token"} {
		if v.Kind == strictyaml.Map && !slices.Contains(given, key) {
			r.Add(v.Line, "%s%s.%s is missing", r.where, label, key)
		}
	}
	return id
}
