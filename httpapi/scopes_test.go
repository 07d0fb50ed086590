package httpapi_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

// allowed lists the scopes that allow each route. A route with an empty list needs no token.
var allowed = map[string][]string{
	"POST /v1/messages":                     {"send"},
	"GET /v1/messages/{id}":                 {"send", "read"},
	"GET /v1/messages/{id}/events":          {"send", "read"},
	"GET /v1/messages":                      {"read"},
	"POST /v1/messages/{id}/cancel":         {"operate"},
	"POST /v1/messages/{id}/finish":         {"operate"},
	"GET /v1/transcript":                    {"read"},
	"POST /v1/schedules/{agent}/{name}/run": {"operate"},
	"GET /v1/workers":                       {"read"},
	"POST /v1/messages/retry":               {"operate"},
	"GET /v1/turns":                         {"read"},
	"GET /v1/turns/{id}":                    {"read"},
	"GET /v1/turns/{id}/events":             {"read"},
	"POST /v1/turns/{id}/cancel":            {"operate"},
	"POST /v1/turns/{id}/finish":            {"operate"},
	"POST /v1/turns/{id}/retry":             {"operate"},
	"GET /v1/model-health":                  {"read"},
	"GET /v1/levels":                        {"read"},
	"POST /v1/levels/pin":                   {"operate"},
	"POST /v1/levels/unpin":                 {"operate"},
	"GET /v1/outbox":                        {"read"},
	"GET /v1/outputs/{id}":                  {"read"},
	"GET /v1/lanes":                         {"read"},
	"GET /v1/schedules":                     {"read"},
	"GET /v1/agents":                        {"read"},
	"GET /v1/agents/{name}":                 {"read"},
	"GET /v1/doctor":                        {"read"},
	"GET /v1/webhooks":                      {"read"},
	"GET /v1/webhooks/{name}/deliveries":    {"read"},
	"GET /v1/asks":                          {"answer", "read"},
	"GET /v1/asks/{id}":                     {"answer", "read"},
	"POST /v1/asks/{id}/answer":             {"answer"},
	"GET /v1/scheduler":                     {"read"},
	"POST /v1/scheduler/pause":              {"operate"},
	"POST /v1/scheduler/resume":             {"operate"},
	"POST /v1/responses":                    {"send"},
	"GET /v1/responses/{id}":                {"send", "read"},
	"GET /v1/responses/{id}/input_items":    {"send", "read"},
	"POST /v1/responses/{id}/cancel":        {"send"},
	"POST /v1/conversations":                {"send"},
	"GET /v1/conversations/{id}":            {"send", "read"},
	"GET /v1/models":                        {"send", "read"},
	"GET /v1/models/{id}":                   {"send", "read"},
	"GET /metrics":                          {"read"},
	"GET /openapi.json":                     {},
	"GET /healthz":                          {},
	"GET /readyz":                           {},
}

// patterns lists the methods and paths of the API.
func patterns() (all []string) {
	for _, r := range httpapi.New(httpapi.Config{}).Routes() {
		all = append(all, r.Pattern())
	}
	return all
}

// TestEveryRouteAgainstEveryScope sends a request to each route by each method, without a token and with a token of
// each scope.
func TestEveryRouteAgainstEveryScope(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	tokens := map[string]string{}
	for _, scope := range httpapi.Scopes() {
		tokens[scope] = h.token(operate.Token{Name: scope, Scopes: []string{scope}})
	}
	patterns := patterns()
	if routes := slices.Sorted(maps.Keys(allowed)); !slices.Equal(slices.Sorted(slices.Values(patterns)), routes) {
		t.Fatalf("the routes are %q; say here who may what of %q", patterns, routes)
	}
	paths := map[string]bool{}
	for _, pattern := range patterns {
		_, path, _ := strings.Cut(pattern, " ")
		paths[path] = true
	}
	bodies := map[string]string{"/v1/messages": `{"agent":"clerk","body":"hello"}`,
		"/v1/responses": `{"model":"clerk","input":"hello","background":true}`}
	for path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
			pattern := strings.Replace(method, "HEAD", "GET", 1) + " " + path
			if pattern == "GET /v1/messages/retry" {
				pattern = "GET /v1/messages/{id}"
			}
			scopes, known := allowed[pattern]
			address := strings.NewReplacer("{id}", "7", "{name}", "hook", "{agent}", "clerk").Replace(path)
			if known && len(scopes) > 0 {
				if a := h.ask(method, address, bodies[path]); a.status != 401 {
					t.Errorf("%s %s without a token is answered %d %s", method, path, a.status, a.body)
				}
			}
			for scope, token := range tokens {
				a := h.ask(method, address, bodies[path], "Authorization", token)
				switch {
				case !known:
					if a.status != 405 {
						t.Errorf("%s %s with the scope %s is answered %d %s", method, path, scope, a.status, a.body)
					}
				case (a.status == 403) != (len(scopes) > 0 && !slices.Contains(scopes, scope)) || a.status == 401:
					t.Errorf("%s %s with the scope %s is answered %d %s", method, path, scope, a.status, a.body)
				}
			}
		}
	}
	if n := one[int](h, "select count(*) from turnkeeper.messages"); n != 2 {
		t.Errorf("%d messages were taken, where only the token that may send sent 2", n)
	}
}
