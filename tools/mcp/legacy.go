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
)

// Servers of the protocol 2025-03-26 do not say whose tokens they take: they are their
// own authorization server, and what that says of itself is at their root, whatever path
// the issuer has. The check of the issuer, which is made for authorization servers
// elsewhere, would refuse those with a path.

type legacyKey struct{}

// withLegacy has the authorization server of that origin taken for the issuer of all
// its paths.
func withLegacy(ctx context.Context, origin string) context.Context {
	return context.WithValue(ctx, legacyKey{}, origin)
}

// legacyIssuer gives the metadata of such an authorization server its origin as issuer,
// if the issuer is of that origin.
func legacyIssuer(req *http.Request, res *http.Response) error {
	origin, _ := req.Context().Value(legacyKey{}).(string)
	if origin == "" || res.StatusCode != http.StatusOK || !strings.HasPrefix(req.URL.String(), origin+"/.well-known/") {
		return nil
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return err
	}
	var said map[string]json.RawMessage
	var issuer string
	if json.Unmarshal(text, &said) == nil && json.Unmarshal(said["issuer"], &issuer) == nil {
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
