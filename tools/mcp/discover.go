package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// An authority is the authorization server of an MCP server, as discovered.
type authority struct {
	resource   string // that the token is for
	issuer     string
	token      string   // endpoint
	revocation string   // endpoint; empty: none
	methods    []string // of client authentication; nil: not stated
	scopes     []string // named by the server
}

// discover finds the authorization server from the MCP server's resource
// metadata, and reads its metadata. A server without resource metadata is its
// own authorization server, as in older versions of the protocol.
func discover(ctx context.Context, client *http.Client, s Server, metadata string) (authority, error) {
	if s.OAuth.TokenEndpoint != "" {
		return authority{resource: s.URL, issuer: s.OAuth.Issuer, token: s.OAuth.TokenEndpoint}, nil
	}
	resource, own, err := resourceMetadata(ctx, client, s.URL, metadata)
	if err != nil {
		return authority{}, err
	}
	if own {
		ctx = withLegacy(ctx, resource.AuthorizationServers[0])
	}
	issuer, err := s.chosenIssuer(resource.AuthorizationServers)
	if err != nil {
		return authority{}, err
	}
	found, err := auth.GetAuthServerMetadata(ctx, issuer, client)
	switch {
	case err != nil:
		return authority{}, fmt.Errorf("what its authorization server %s says of itself cannot be used: %w",
			s.bounded(issuer, maxNote), plainAuthError(err))
	case found == nil:
		base := strings.TrimSuffix(issuer, "/")
		found = &oauthex.AuthServerMeta{Issuer: issuer, TokenEndpoint: base + "/token"}
	case found.TokenEndpoint == "":
		return authority{}, errors.New("its authorization server has no token endpoint")
	}
	return authority{
		resource: resource.Resource, issuer: found.Issuer, token: found.TokenEndpoint,
		revocation: found.RevocationEndpoint,
		methods:    found.TokenEndpointAuthMethodsSupported, scopes: cleanScopes(resource.ScopesSupported),
	}, nil
}

// chosenIssuer returns the first authorization server, or the one that the
// operator configured.
func (s Server) chosenIssuer(named []string) (string, error) {
	wanted := s.OAuth.Issuer
	if wanted == "" {
		return named[0], nil
	}
	for _, issuer := range named {
		if sameIssuer(issuer, wanted) {
			return issuer, nil
		}
	}
	return "", fmt.Errorf("it wants tokens of %s, and the settings (oauth.issuer) have another authorization server",
		s.bounded(strings.Join(named, ", "), maxNote))
}

func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// resourceMetadata reads the resource metadata of a server, which must be for
// the server's own address. own is true if there is none, so the server is its
// own authorization server.
func resourceMetadata(ctx context.Context, client *http.Client, server,
	named string) (_ *oauthex.ProtectedResourceMetadata, own bool, err error) {
	places, err := metadataPlaces(server, named)
	if err != nil {
		return nil, false, err
	}
	for _, p := range places {
		traced, trace := withTrace(ctx)
		found, err := oauthex.GetProtectedResourceMetadata(traced, p.url, p.resource, client)
		status := trace.status.Load()
		switch {
		case err == nil && len(found.AuthorizationServers) == 0:
			return nil, false, errors.New("it wants a token and names no authorization server")
		case err == nil:
			return found, false, nil
		case p.url != named && status >= 400 && status < 500:
			continue // no metadata here
		}
		return nil, false, fmt.Errorf("what it says of the tokens that it takes cannot be used: %w",
			plainAuthError(err))
	}
	return &oauthex.ProtectedResourceMetadata{Resource: server,
		AuthorizationServers: []string{places[len(places)-1].resource}}, true, nil
}

type metadataPlace struct{ url, resource string }

// metadataPlaces returns the URLs where the metadata may be: the one that the
// server named, or else below its own path and at its root.
func metadataPlaces(server, named string) ([]metadataPlace, error) {
	const wellKnown = "/.well-known/oauth-protected-resource"
	own, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if named != "" {
		return []metadataPlace{{named, server}}, nil
	}
	root := url.URL{Scheme: own.Scheme, Host: own.Host}
	places := []metadataPlace{{root.String() + wellKnown, root.String()}}
	if path := strings.TrimLeft(own.Path, "/"); path != "" {
		below := *own
		below.Path = wellKnown + "/" + path
		places = append([]metadataPlace{{below.String(), server}}, places...)
	}
	return places, nil
}
