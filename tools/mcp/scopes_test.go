package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWhatARefusalAsksFor checks what is read of the WWW-Authenticate headers of a refusal.
func TestWhatARefusalAsksFor(t *testing.T) {
	t.Parallel()
	type wanted struct {
		Status                  int
		Refused, Scope          bool
		Metadata, Code, AsksFor string
	}
	for name, c := range map[string]struct {
		status     int
		challenges []string
		want       wanted
	}{
		"no refusal":      {200, []string{`Bearer scope="a"`}, wanted{}},
		"another refusal": {404, []string{`Bearer scope="a"`}, wanted{}},
		"no header":       {401, nil, wanted{Status: 401, Refused: true}},
		"no valid header": {401, []string{`Bearer scope="`}, wanted{Status: 401, Refused: true}},
		"all at once": {403,
			[]string{`Bearer resource_metadata="https://h/m", error="insufficient_scope", scope="a b a"`},
			wanted{403, true, true, "https://h/m", "insufficient_scope", "a b"}},
		"without 403": {401, []string{`Bearer error="insufficient_scope"`}, wanted{Status: 401, Refused: true,
			Code: "insufficient_scope"}},
		"another reason": {403, []string{`Bearer error="invalid_token", scope="a"`},
			wanted{Status: 403, Refused: true, Code: "invalid_token", AsksFor: "a"}},
		"two headers": {401, []string{`Basic realm="x", scope="no", error="no"`,
			`Bearer resource_metadata="https://h/1", scope="a"`}, wanted{Status: 401, Refused: true,
			Metadata: "https://h/1", AsksFor: "a"}},
		"the first counts": {403,
			[]string{`Bearer resource_metadata="https://h/1", error="insufficient_scope", scope="a"`,
				`Bearer resource_metadata="https://h/2", error="x", scope="b"`}, wanted{403, true, true, "https://h/1",
				"insufficient_scope", "a"}},
	} {
		r, ok := refusalOf(&http.Response{StatusCode: c.status, Header: http.Header{"Www-Authenticate": c.challenges}})
		got := wanted{Status: r.status, Refused: ok, Scope: r.insufficientScope(), Metadata: r.metadata, Code: r.code,
			AsksFor: strings.Join(r.scopes, " ")}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !ok {
			continue
		}
		again := r.response()
		if again.StatusCode != c.status || !cmp.Equal(again.Header.Values("WWW-Authenticate"), c.challenges) {
			t.Errorf("%s is passed on as %d %v", name, again.StatusCode, again.Header)
		}
	}
}

// TestWhichScopesAreTaken checks which scopes are left out, and that the order of the others stays.
func TestWhichScopesAreTaken(t *testing.T) {
	t.Parallel()
	got := cleanScopes([]string{"b", "", "a", "b", "with blank", "ü", `"`, `\`, "~!#", "tab\t"})
	if diff := cmp.Diff([]string{"b", "a", "~!#"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, union([]string{"a", "b"}, []string{"b", "c", "a"})); diff != "" {
		t.Error(diff)
	}
	if contains([]string{"a"}, []string{"a", "b"}) || !contains([]string{"b", "a"}, []string{"a"}) ||
		!contains(nil, nil) {
		t.Error("contains does not say whether all are there")
	}
}

// pages are the responses of addresses; others have none. A response that is only a number is a status.
type pages map[string]string

func (p pages) RoundTrip(req *http.Request) (*http.Response, error) {
	status, body := http.StatusOK, p[req.URL.String()]
	if body == "" {
		status = http.StatusNotFound
	} else if _, err := fmt.Sscan(body, &status); err == nil {
		body = ""
	}
	res := &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/json"}}, Request: req}
	traceOf(req.Context()).answer(status)
	return res, legacyIssuer(req, res)
}

// TestHowAnAuthorizationServerIsFound checks what is known of an authorization server, for each way to find it.
func TestHowAnAuthorizationServerIsFound(t *testing.T) {
	t.Parallel()
	const (
		below, root = "https://h/.well-known/oauth-protected-resource/mcp",
			"https://h/.well-known/oauth-protected-resource"
		login, own = "https://login/.well-known/oauth-authorization-server",
			"https://h/.well-known/oauth-authorization-server"
		resource = `{"resource":"https://h/mcp","authorization_servers":["https://login","https://other"],"scopes_supported":["r","r","bad scope"]}`
		server   = `{"issuer":%q,"token_endpoint":%q,"revocation_endpoint":"https://login/revoke","token_endpoint_auth_methods_supported":["m"],"authorization_endpoint":"https://login/a","response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`
	)
	atLogin := fmt.Sprintf(server, "https://login", "https://login/token")
	found := authority{
		resource: "https://h/mcp", issuer: "https://login", token: "https://login/token",
		revocation: "https://login/revoke", methods: []string{"m"}, scopes: []string{"r"},
	}
	atRoot := found
	atRoot.resource, atRoot.scopes = "https://h", nil
	for name, c := range map[string]struct {
		pages pages
		told  string
		oauth OAuth
		want  authority
		err   string
	}{
		"below its path": {pages{below: resource, login: atLogin}, "", OAuth{}, found, ""},
		"where it says": {pages{"https://h/m": resource, login: atLogin}, "https://h/m",
			OAuth{}, found, ""},
		"not where it says": {pages{below: resource, login: atLogin}, "https://h/m", OAuth{}, authority{},
			"what it says of the tokens that it takes cannot be used"},
		"at its root": {
			pages{root: `{"resource":"https://h","authorization_servers":["https://login"]}`, login: atLogin}, "",
			OAuth{}, atRoot, ""},
		"of another resource": {pages{below: strings.Replace(resource, "/mcp", "/x", 1), login: atLogin}, "",
			OAuth{}, authority{}, "what it says of the tokens"},
		"not now": {pages{below: "503", root: resource, login: atLogin}, "", OAuth{}, authority{},
			"what it says of the tokens"},
		"it is refused": {pages{below: "499",
			root: `{"resource":"https://h","authorization_servers":["https://login"]}`, login: atLogin}, "",
			OAuth{}, atRoot, ""},
		"nobody is named": {pages{below: `{"resource":"https://h/mcp"}`}, "", OAuth{}, authority{},
			"it wants a token and names no authorization server"},
		"the operator's choice": {pages{below: resource,
			"https://other/.well-known/oauth-authorization-server": fmt.Sprintf(server, "https://other",
				"https://other/t")}, "", OAuth{Issuer: "https://other/"}, authority{"https://h/mcp", "https://other",
			"https://other/t", "https://login/revoke", []string{"m"}, []string{"r"}}, ""},
		"not the operator's choice": {pages{below: resource, login: atLogin}, "", OAuth{Issuer: "https://third"},
			authority{},
			"it wants tokens of https://login, https://other, and the settings (oauth.issuer) have another"},
		"the settings say": {nil, "", OAuth{Issuer: "https://i", TokenEndpoint: "https://t"},
			authority{resource: "https://h/mcp", issuer: "https://i", token: "https://t"}, ""},
		"without metadata": {pages{below: resource}, "", OAuth{}, authority{resource: "https://h/mcp",
			issuer: "https://login", token: "https://login/token", scopes: []string{"r"}}, ""},
		"without a token endpoint": {pages{below: resource, login: fmt.Sprintf(server, "https://login", "")}, "",
			OAuth{}, authority{}, "its authorization server has no token endpoint"},
		"metadata of another": {pages{below: resource, login: fmt.Sprintf(server, "https://x", "https://x/t")},
			"", OAuth{}, authority{}, "what its authorization server https://login says of itself cannot be used"},
		"itself": {pages{own: fmt.Sprintf(server, "https://h", "https://h/t")}, "", OAuth{},
			authority{"https://h/mcp", "https://h", "https://h/t", "https://login/revoke", []string{"m"}, nil}, ""},
		"itself, with a path": {pages{own: fmt.Sprintf(server, "https://h/oauth", "https://h/t")}, "", OAuth{},
			authority{"https://h/mcp", "https://h", "https://h/t", "https://login/revoke", []string{"m"}, nil}, ""},
		"itself, with another origin": {pages{own: fmt.Sprintf(server, "https://x/oauth", "https://h/t")}, "", OAuth{},
			authority{}, "what its authorization server https://h says of itself cannot be used"},
		"a path is not for others": {pages{below: resource, login: fmt.Sprintf(server, "https://login/oauth",
			"https://login/t")}, "", OAuth{}, authority{}, "says of itself cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := discover(t.Context(), &http.Client{Transport: c.pages}, Server{Name: "h", URL: "https://h/mcp",
				OAuth: &c.oauth}, c.told)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if c.err == "" && !cmp.Equal(got, c.want, cmp.AllowUnexported(authority{})) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// TestWhereMetadataIsLookedFor checks the addresses, most exact first.
func TestWhereMetadataIsLookedFor(t *testing.T) {
	t.Parallel()
	const at = "https://h:1/.well-known/oauth-protected-resource"
	for server, want := range map[string][]metadataPlace{
		"https://h:1":           {{at, "https://h:1"}},
		"https://h:1/":          {{at, "https://h:1"}},
		"https://h:1/a/b?c=d":   {{at + "/a/b?c=d", "https://h:1/a/b?c=d"}, {at, "https://h:1"}},
		"https://h:1/a#secrets": {{at + "/a#secrets", "https://h:1/a#secrets"}, {at, "https://h:1"}},
	} {
		got, err := metadataPlaces(server, "")
		if err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(metadataPlace{})) {
			t.Errorf("%s: %v, %v", server, got, err)
		}
	}
	if got, err := metadataPlaces("https://h/a", "https://m"); err != nil || len(got) != 1 ||
		got[0] != (metadataPlace{"https://m", "https://h/a"}) {
		t.Errorf("where the server says: %v, %v", got, err)
	}
	if _, err := metadataPlaces("http://h:port", ""); err == nil {
		t.Error("an address that is none is taken")
	}
}

// TestHowFarARequestGot checks what a trace records, also where there is none.
func TestHowFarARequestGot(t *testing.T) {
	t.Parallel()
	ctx, seen := withTrace(context.Background())
	traceOf(ctx).send()
	traceOf(ctx).answer(404)
	if !seen.sent.Load() || seen.status.Load() != 404 {
		t.Errorf("sent %t, status %d", seen.sent.Load(), seen.status.Load())
	}
	traceOf(ctx).unsent()
	if seen.sent.Load() {
		t.Error("it is still sent")
	}
	none := traceOf(context.Background())
	none.send()
	none.unsent()
	none.answer(200)
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// TestWhoseIssuerIsReplaced checks that the issuer is replaced by its origin only in the metadata of an old server, and
// that everything else that is said stays.
func TestWhoseIssuerIsReplaced(t *testing.T) {
	t.Parallel()
	const at = "https://h/.well-known/oauth-authorization-server"
	for _, c := range []struct {
		origin, address string
		status          int
		body, want      string
	}{
		{"https://h", at, 200, `{"a":1,"issuer":"https://h/oauth"}`, `{"a":1,"issuer":"https://h"}`},
		{"https://h", "https://h/token", 200, `{"a":1,"issuer":"https://h/oauth"}`, ""},
		{"", at, 200, `{"a":1,"issuer":"https://h/oauth"}`, ""},
		{"https://x", at, 200, `{"issuer":"https://h/oauth"}`, ""}, {"https://h", at, 404,
			`{"issuer":"https://h/oauth"}`, ""},
		{"https://h", at, 200, `{"issuer":"https://x/oauth"}`, ""}, {"https://h", at, 200, `{"issuer":7}`, ""},
		{"https://h", at, 200, `no JSON`, ""},
	} {
		ctx := t.Context()
		if c.origin != "" {
			ctx = withLegacy(ctx, c.origin)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res := &http.Response{StatusCode: c.status, Body: io.NopCloser(strings.NewReader(c.body)),
			ContentLength: int64(len(c.body))}
		failed := legacyIssuer(req, res)
		got, err := io.ReadAll(res.Body)
		if want := orElse(c.want, c.body); failed != nil || err != nil || string(got) != want ||
			res.ContentLength != int64(len(want)) {
			t.Errorf("%+v: %s of %d bytes, %v, %v", c, got, res.ContentLength, failed, err)
		}
	}
}
