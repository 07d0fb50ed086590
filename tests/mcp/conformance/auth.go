package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"turnkeeper/tools/mcp"
)

// given is what the suite provides for a scenario.
type given struct {
	ClientID         string `json:"client_id"`
	ClientSecret     string `json:"client_secret"`
	PrivateKey       string `json:"private_key_pem"`
	IDPClientID      string `json:"idp_client_id"`
	IDPToken         string `json:"idp_id_token"`
	IDPTokenEndpoint string `json:"idp_token_endpoint"`
}

// metadataURL is the client id that the suite expects from clients with a metadata URL.
const metadataURL = "https://conformance-test.local/client-metadata.json"

// runAuth runs an OAuth scenario, with the settings that an operator would make for it.
func runAuth(ctx context.Context, scenario string, server mcp.Server) error {
	var g given
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			return err
		}
	}
	server.OAuth = &mcp.OAuth{Grant: mcp.GrantAuthorizationCode, ClientID: g.ClientID, ClientSecret: g.ClientSecret}
	switch {
	case scenario == "basic-cimd":
		server.OAuth.ClientMetadataURL = metadataURL
	case g.IDPToken != "":
		server.OAuth.Grant = mcp.GrantEnterprise
		server.OAuth.Identity = mcp.Identity{
			ClientID: g.IDPClientID, TokenEndpoint: g.IDPTokenEndpoint, Token: func() (string, error) {
				return g.IDPToken, nil
			},
		}
	case strings.HasPrefix(scenario, "client-credentials"):
		server.OAuth.Grant = mcp.GrantClientCredentials
	}
	if g.PrivateKey != "" {
		key, err := keyOf(g.PrivateKey)
		if err != nil {
			return err
		}
		server.OAuth.PrivateKey = key
	}
	key := make([]byte, mcp.KeyBytes)
	_, _ = rand.Read(key) // it never fails
	access := mcp.Access{Logins: &logins{}, Key: key}
	if server.OAuth.Grant != mcp.GrantAuthorizationCode {
		return useAuth(ctx, server, access)
	}
	return useLogin(ctx, server, access)
}

// useAuth calls the tool with a token that needs no login.
func useAuth(ctx context.Context, server mcp.Server, access mcp.Access) error {
	client := mcp.New(mcp.Config{Servers: []mcp.Server{server}, Access: access})
	defer client.Close()
	return authCall.run(ctx, client)
}

// useLogin logs in and calls the tool. If the call fails because the login is insufficient, it logs in again
// and repeats the call once, as the error asks for.
func useLogin(ctx context.Context, server mcp.Server, access mcp.Access) error {
	client := mcp.New(mcp.Config{Servers: []mcp.Server{server}, Access: access})
	defer client.Close()
	if err := logIn(ctx, server, access); err != nil {
		return err
	}
	err := authCall.run(ctx, client)
	if err == nil || !strings.Contains(err.Error(), "turnctl mcp login "+serverName) {
		return err
	}
	if err := logIn(ctx, server, access); err != nil {
		return err
	}
	return authCall.run(ctx, client)
}

func logIn(ctx context.Context, server mcp.Server, access mcp.Access) error {
	_, _, err := mcp.Login(ctx, server, access, mcp.Person{Redirect: "http://127.0.0.1:3000/callback", Visit: visit})
	return err
}

// visit acts as the browser of a user whom the authorization server knows and does not ask anything.
func visit(ctx context.Context, address string) (*url.URL, error) {
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := browser.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 != 3 {
		return nil, fmt.Errorf("the authorization server shows a page with status %d", res.StatusCode)
	}
	return res.Location()
}

func keyOf(text string) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the suite's key is not in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the suite's key cannot sign")
	}
	return signer, nil
}
