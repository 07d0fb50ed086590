package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"go.uber.org/zap"
	"golang.org/x/oauth2"

	"turnkeeper"
	"turnkeeper/tools/mcp/mcpdef"
)

// A Person is the person who logs in.
type Person struct {
	// Redirect is the address on the person's machine to which the authorization
	// server redirects the browser.
	Redirect string
	// Visit sends the person to an address, and returns the address of the redirect
	// back. It may be called more than once, if a server asks for more scopes.
	Visit func(ctx context.Context, address string) (back *url.URL, err error)
}

// clientName is the name that the login page shows if the worker registers
// itself as a client.
const clientName = "Turnkeeper"

// maxVisits is the maximum number of times one login sends the person to the
// browser.
const maxVisits = 3

// Login logs a person in to a server and stores the login. It returns the
// login, and how many tools the server lists with it.
func Login(ctx context.Context, s Server, access Access, person Person) (mcpdef.Login, int, error) {
	if s.OAuth == nil || s.OAuth.Grant != GrantAuthorizationCode {
		return mcpdef.Login{}, 0, errors.New("nobody logs in to this server: its oauth.grant is not authorization_code")
	}
	visitor, err := newVisitor(ctx, s, access, person)
	if err != nil {
		return mcpdef.Login{}, 0, err
	}
	defer visitor.close()
	tools, err := visitor.tools(ctx)
	if err != nil {
		return mcpdef.Login{}, 0, plainAuthError(err)
	}
	if visitor.given == nil {
		return mcpdef.Login{}, 0, errors.New("the server answers without a login: take oauth out of its settings")
	}
	l, err := visitor.keep(ctx)
	return l, tools, err
}

// A visitor is the authorizer of the session in which a person logs in.
type visitor struct {
	server    Server
	access    Access
	client    *http.Client
	closeIdle func()
	person    Person
	before    mcpdef.Login // the stored login; its zero value: none
	flow      *auth.AuthorizationCodeHandler
	turn      gate

	visits   int
	scopes   []string // requested
	resource string
	metadata string
	config   *oauth2.Config
	given    *oauth2.Token // the new token; nil: none yet
	failed   error         // why the login failed; the person is not sent to log in again
}

func newVisitor(ctx context.Context, s Server, access Access, person Person) (*visitor, error) {
	before, err := access.Logins.MCPLogin(ctx, s.Name)
	if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) {
		return nil, err
	}
	v := &visitor{server: s, access: access, person: person, before: before, turn: newGate()}
	v.client, v.closeIdle = newAuthClient(s)
	v.flow, err = auth.NewAuthorizationCodeHandler(v.settings())
	return v, err
}

// settings returns the settings of the SDK's login flow.
func (v *visitor) settings() *auth.AuthorizationCodeHandlerConfig {
	o := v.server.OAuth
	settings := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: v.person.Redirect, AuthorizationCodeFetcher: v.visit, ScopeFilter: v.choose,
		RequestRefreshToken: true, AcceptUnadvertisedIss: true, Client: v.client,
		NewTokenSource: func(_ context.Context, cfg *oauth2.Config, token *oauth2.Token) (oauth2.TokenSource, error) {
			v.access.learn(token.AccessToken)
			v.access.learn(token.RefreshToken)
			v.config, v.given = cfg, token
			return oauth2.StaticTokenSource(token), nil
		},
	}
	if o.ClientMetadataURL != "" {
		settings.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: o.ClientMetadataURL}
	}
	if o.ClientID == "" {
		settings.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{
				ClientName: clientName, RedirectURIs: []string{v.person.Redirect}, TokenEndpointAuthMethod: "none",
				GrantTypes: []string{"authorization_code", grantRefresh}, ResponseTypes: []string{"code"},
			}}
		return settings
	}
	settings.PreregisteredClient = &oauthex.ClientCredentials{ClientID: o.ClientID, Issuer: o.Issuer}
	if o.ClientSecret != "" {
		settings.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: o.ClientSecret}
	}
	return settings
}

// choose returns the scopes to request: those of the settings, or else those
// that the server named, and those that the server asked for since the last
// login.
func (v *visitor) choose(named []string) []string {
	scopes := named
	if len(v.server.OAuth.Scopes) > 0 {
		scopes = v.server.OAuth.Scopes
	}
	return union(scopes, v.before.Wanted)
}

// visit sends the person to the authorization server and returns the code of
// the redirect back.
func (v *visitor) visit(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
	if v.visits++; v.visits > maxVisits {
		return nil, errors.New("the server asks for one login after the other")
	}
	to, err := url.Parse(args.URL)
	if err != nil || to.Scheme != "https" && !isLoopback(to.Hostname()) {
		return nil, errors.New("the authorization server's page for logins is refused: its address must be https")
	}
	asked := to.Query()
	v.resource, v.scopes = asked.Get("resource"), strings.Fields(asked.Get("scope"))
	back, err := v.person.Visit(ctx, args.URL)
	if err != nil {
		return nil, err
	}
	said := back.Query()
	if code := said.Get("error"); code != "" {
		text := "the authorization server refuses the login: " + v.server.bounded(code, maxScope)
		if more := said.Get("error_description"); more != "" {
			text += ": " + v.server.bounded(more, maxNote)
		}
		return nil, errors.New(text)
	}
	if said.Get("code") == "" {
		return nil, errors.New("the address that the browser was sent back to has no code")
	}
	v.access.learn(said.Get("code"))
	return &auth.AuthorizationResult{Code: said.Get("code"), State: said.Get("state"), Iss: said.Get("iss")}, nil
}

// tools returns the number of tools that the server lists. This also checks
// that the login works.
func (v *visitor) tools(ctx context.Context) (int, error) {
	s, err := connector{server: v.server, log: zap.NewNop(), limits: defaultLimits(), relist: func() {},
		auth: v}.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer s.close()
	list, err := s.list(ctx)
	return len(list), err
}

func (v *visitor) close() { v.closeIdle() }

// token returns the new token. Concurrent requests may call it.
func (v *visitor) token(ctx context.Context) (string, error) {
	if err := v.turn.enter(ctx); err != nil {
		return "", err
	}
	defer v.turn.leave()
	if v.given == nil {
		return "", nil
	}
	return v.given.AccessToken, nil
}

func (v *visitor) renew(ctx context.Context, used string, why refusal) (bool, error) {
	if err := v.turn.enter(ctx); err != nil {
		return false, err
	}
	defer v.turn.leave()
	switch {
	case v.failed != nil:
		return false, v.failed
	case v.given != nil && v.given.AccessToken != used:
		return true, nil
	case why.status == http.StatusForbidden && !why.insufficientScope():
		return false, nil
	case why.insufficientScope() && v.given != nil && contains(v.scopes, why.scopes):
		return false, notGranted(why.scopes)
	}
	v.metadata = why.metadata
	resource, own, err := resourceMetadata(ctx, v.client, v.server.URL, why.metadata)
	if err == nil { // the SDK's flow uses the first authorization server
		_, err = v.server.chosenIssuer(resource.AuthorizationServers[:1])
	}
	if err != nil {
		return false, noToken(err)
	}
	if own {
		ctx = withLegacy(ctx, resource.AuthorizationServers[0])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, v.server.URL, http.NoBody)
	if err != nil {
		return false, err
	}
	if err := v.flow.Authorize(ctx, request,
		why.response()); err != nil { //nolint:bodyclose // the flow closes it, and it is empty
		v.failed = &AuthError{Why: "the login has failed: " + v.server.flowError(err).Error()}
		return false, v.failed
	}
	return true, nil
}

// response returns the refusal as a response for the SDK.
func (r refusal) response() *http.Response {
	return &http.Response{StatusCode: r.status, Header: http.Header{"Www-Authenticate": slices.Clone(r.challenges)},
		Body: io.NopCloser(strings.NewReader(""))}
}

// flowError returns why a login flow failed, without the response of the token
// endpoint.
func (s Server) flowError(err error) error {
	if _, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return s.askError(err)
	}
	return plainAuthError(err)
}

// keep stores the login.
func (v *visitor) keep(ctx context.Context) (mcpdef.Login, error) {
	l := login{
		URL: v.server.URL, Resource: v.resource, Endpoint: v.config.Endpoint.TokenURL, Metadata: v.metadata,
		ClientID: v.config.ClientID, Secret: v.config.ClientSecret, Style: int(v.config.Endpoint.AuthStyle),
	}
	v.access.learn(l.Secret)
	if v.config.Endpoint.AuthStyle == oauth2.AuthStyleAutoDetect {
		l.Style = int(styleOf(l.Secret, nil))
	}
	l.take(v.given)
	now := time.Now()
	row, err := l.row(v.access.Key, mcpdef.Login{Server: v.server.Name, Scopes: cleanScopes(v.scopes),
		LoggedInAt: now}, v.given)
	if err != nil {
		return row, err
	}
	return row, v.access.Logins.SaveMCPLogin(ctx, row)
}

// Logout removes the stored login to a server, and revokes its tokens. was is
// false if there was no login. failure is the reason that the tokens could not be
// revoked, so the authorization server accepts them until they expire; nil
// means that they were revoked.
func Logout(ctx context.Context, s Server, access Access) (was bool, failure, err error) {
	row, err := access.Logins.MCPLogin(ctx, s.Name)
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	}
	failure = revoke(ctx, s, access, row)
	was, err = access.Logins.ForgetMCPLogin(ctx, s.Name)
	return was, failure, err
}

// revoke revokes the tokens of a login at the authorization server.
func revoke(ctx context.Context, s Server, access Access, row mcpdef.Login) error {
	l, err := unseal(access.Key, s.Name, row.Sealed)
	if err != nil {
		return fmt.Errorf("the login cannot be opened: %w", err)
	}
	if l.URL != s.URL || s.OAuth == nil {
		return errors.New("the login was made with other settings of the server")
	}
	for _, secret := range []string{l.Access, l.Refresh, l.Secret} {
		access.learn(secret)
	}
	client, closeIdle := newAuthClient(s)
	defer closeIdle()
	from, err := discover(ctx, client, s, l.Metadata)
	switch {
	case err != nil:
		return err
	case from.revocation == "":
		return errors.New("it has no way to be told")
	}
	c := credential{id: l.ClientID, secret: l.Secret, style: oauth2.AuthStyle(l.Style)}
	for _, one := range []struct{ hint, token string }{{"refresh_token", l.Refresh}, {"access_token", l.Access}} {
		if one.token != "" {
			err = errors.Join(err, revokeOne(ctx, client, from.revocation, c, one.token, one.hint))
		}
	}
	return err
}

func revokeOne(ctx context.Context, client *http.Client, endpoint string, c credential, token, hint string) error {
	form := url.Values{"token": {token}, "token_type_hint": {hint}}
	if c.style == oauth2.AuthStyleInParams {
		form.Set("client_id", c.id)
		if c.secret != "" {
			form.Set("client_secret", c.secret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New("its address for that cannot be used")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if c.style == oauth2.AuthStyleInHeader {
		req.SetBasicAuth(url.QueryEscape(c.id), url.QueryEscape(c.secret))
	}
	res, err := client.Do(req)
	if err != nil {
		return plainAuthError(err)
	}
	drain(res)
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("it answered with HTTP status %d", res.StatusCode)
	}
	return nil
}
