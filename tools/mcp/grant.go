package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// A credential identifies a client at a token endpoint.
type credential struct {
	id     string
	secret string // empty: a public client, or one with an assertion in params
	style  oauth2.AuthStyle
	params url.Values
}

// styleOf returns how to send a secret: as the authorization server requires,
// by default in the header.
func styleOf(secret string, methods []string) oauth2.AuthStyle {
	switch {
	case secret == "":
		return oauth2.AuthStyleInParams
	case slices.Contains(methods, "client_secret_post"):
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// assertionTime is the lifetime of a client assertion.
const assertionTime = time.Minute

const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// credentialOf returns the client's credential at an authorization server: its
// secret, or an assertion for this server signed by its key.
func credentialOf(o *OAuth, a authority) (credential, error) {
	if o.PrivateKey == nil {
		return credential{id: o.ClientID, secret: o.ClientSecret, style: styleOf(o.ClientSecret, a.methods)}, nil
	}
	method, err := signingMethod(o.PrivateKey)
	if err != nil {
		return credential{}, err
	}
	audience := a.issuer
	if audience == "" {
		audience = a.token
	}
	now := time.Now()
	claims := jwt.MapClaims{
		"iss": o.ClientID, "sub": o.ClientID, "aud": audience, "jti": newID(),
		"iat": now.Unix(), "exp": now.Add(assertionTime).Unix(),
	}
	assertion := jwt.NewWithClaims(method, claims)
	if o.KeyID != "" {
		assertion.Header["kid"] = o.KeyID
	}
	signed, err := assertion.SignedString(o.PrivateKey)
	if err != nil {
		return credential{}, errors.New("the private key could not sign")
	}
	return credential{id: o.ClientID, style: oauth2.AuthStyleInParams, params: url.Values{
		"client_assertion": {signed}, "client_assertion_type": {assertionType},
	}}, nil
}

// ask requests a token from a token endpoint, once.
func (s Server) ask(ctx context.Context, endpoint string, c credential, scopes []string,
	params url.Values) (*oauth2.Token, error) {
	all := url.Values{}
	for _, some := range []url.Values{c.params, params} {
		for name, values := range some {
			all[name] = values
		}
	}
	request := &clientcredentials.Config{
		ClientID: c.id, ClientSecret: c.secret, AuthStyle: c.style, TokenURL: endpoint, Scopes: scopes,
		EndpointParams: all,
	}
	token, err := request.Token(ctx)
	if err != nil {
		return nil, s.askError(err)
	}
	if kind := token.TokenType; kind != "" && !strings.EqualFold(kind, "bearer") {
		return nil, fmt.Errorf("the authorization server has given a token of the kind %q, which cannot be used",
			s.bounded(kind, maxScope))
	}
	return token, nil
}

// A refusedGrant is the response of a token endpoint that refuses a token.
type refusedGrant struct {
	code   string // such as invalid_grant; empty: not stated
	text   string
	status int
}

func (e *refusedGrant) Error() string {
	text := fmt.Sprintf("the authorization server refuses a token (HTTP status %d", e.status)
	if e.code != "" {
		text += ", " + e.code
	}
	text += ")"
	if e.text != "" {
		text += ": " + e.text
	}
	return text
}

// askError returns the error of a token request. Of the response it includes
// only the status, the code and the description.
func (s Server) askError(err error) error {
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return &refusedGrant{
			code: s.bounded(answer.ErrorCode, maxScope), text: s.bounded(answer.ErrorDescription, maxNote),
			status: answer.Response.StatusCode,
		}
	}
	plain := plainAuthError(err)
	if strings.HasPrefix(plain.Error(), "oauth2: cannot parse") {
		return errors.New("what the authorization server answered is no token")
	}
	return plain
}

const (
	grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer" //nolint:gosec // no secret
	grantRefresh   = "refresh_token"
)

// askAsMachine requests a token for a grant without a login.
func askAsMachine(ctx context.Context, s Server, a authority, scopes []string,
	learn func(string)) (*oauth2.Token, error) {
	c, err := credentialOf(s.OAuth, a)
	if err != nil {
		return nil, err
	}
	params := url.Values{"resource": {a.resource}}
	if s.OAuth.Grant == GrantEnterprise {
		assertion, err := s.vouched(ctx, a, scopes)
		if err != nil {
			return nil, err
		}
		learn(assertion)
		params.Set("grant_type", grantJWTBearer)
		params.Set("assertion", assertion)
	}
	return s.ask(ctx, a.token, c, scopes, params)
}

// vouched returns the identity provider's assertion about the worker for an
// authorization server.
func (s Server) vouched(ctx context.Context, a authority, scopes []string) (string, error) {
	id := s.OAuth.Identity
	identity, err := id.Token()
	if err != nil {
		return "", fmt.Errorf("the ID token cannot be read: %w", err)
	}
	c := &oauthex.ClientCredentials{ClientID: id.ClientID}
	if id.ClientSecret != "" {
		c.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: id.ClientSecret}
	}
	token, err := oauthex.ExchangeToken(ctx, id.TokenEndpoint, &oauthex.TokenExchangeRequest{
		RequestedTokenType: oauthex.TokenTypeIDJAG, Audience: a.issuer, Resource: a.resource, Scope: scopes,
		SubjectToken: identity, SubjectTokenType: oauthex.TokenTypeIDToken,
	}, c, clientOf(ctx))
	if err != nil {
		return "", fmt.Errorf("the identity provider does not vouch for this worker: %w", s.askError(err))
	}
	return token.AccessToken, nil
}
