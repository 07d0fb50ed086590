package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"turnkeeper/internal/jsonlimit"
)

// Servers of the protocol 2025-03-26 have no protected resource metadata: they
// are their own authorization server, and its metadata is at the root, even if
// the issuer has a path. The issuer check that applies to other authorization
// servers would refuse an issuer with a path.

type legacyKey struct{}

// withLegacy makes legacyIssuer accept all issuers of that origin.
func withLegacy(ctx context.Context, origin string) context.Context {
	return context.WithValue(ctx, legacyKey{}, origin)
}

// legacyIssuer replaces the issuer in the metadata of such an authorization
// server by its origin, if the issuer is of that origin.
func legacyIssuer(req *http.Request, res *http.Response) error {
	origin, _ := req.Context().Value(legacyKey{}).(string)
	if origin == "" || res.StatusCode != http.StatusOK || !strings.HasPrefix(req.URL.String(), origin+"/.well-known/") {
		return nil
	}
	text, err := jsonlimit.MCPLogin.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return err
	}
	var said map[string]json.RawMessage
	var issuer string
	if jsonlimit.MCPLogin.Unmarshal(text, &said) == nil && json.Unmarshal(said["issuer"], &issuer) == nil {
		if u, err := url.Parse(issuer); err == nil && u.Scheme+"://"+u.Host == origin {
			said["issuer"] = json.RawMessage(strconv.Quote(origin))
			if text, err = json.Marshal(said); err != nil {
				return err
			}
		}
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return nil
}
