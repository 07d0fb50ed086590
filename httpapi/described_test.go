package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/outbox"
)

// A sample is a value of a parameter, and whether it is within the limits that the description names.
type sample struct {
	value  string
	within bool
}

// samplesOf returns values of a parameter just within its limits and just outside.
func samplesOf(t *testing.T, p httpapi.Parameter) (all []sample) {
	t.Helper()
	for constraint := range strings.SplitSeq(p.Schema, ",") {
		name, text, _ := strings.Cut(constraint, "=")
		n, err := strconv.Atoi(text)
		switch {
		case name == "" || name == "default" || name == "pattern":
			continue
		case err != nil:
			t.Errorf("%s: the constraint %q has no number", p.Name, constraint)
		}
		text = strings.Repeat("x", n)
		switch name {
		case "minimum":
			all = append(all, sample{strconv.Itoa(n - 1), false}, sample{strconv.Itoa(n), true})
		case "maximum":
			all = append(all, sample{strconv.Itoa(n), true}, sample{strconv.Itoa(n + 1), false})
		case "minLength":
			all = append(all, sample{text[1:], false}, sample{text, true})
		case "maxLength":
			all = append(all, sample{text, true}, sample{text + "x", false})
		default:
			t.Errorf("%s: nothing tries the constraint %q", p.Name, constraint)
		}
	}
	switch kind := reflect.TypeOf(p.Type); {
	case kind.Kind() == reflect.Bool:
		all = append(all, sample{"true", true}, sample{"false", true}, sample{"yes", false})
	case kind.Kind() == reflect.Int, kind.Kind() == reflect.Int64:
		all = append(all, sample{"x", false}, sample{"1.5", false}, sample{"99999999999999999999", false})
	case kind.Kind() == reflect.String && kind.PkgPath() != "": // one of some words
		all = append(all, sample{"nonsense", false})
	}
	return all
}

// TestParametersAreBoundedAsDescribed sends each parameter of each route at the limits that the description names: it
// must be refused outside, and not within.
func TestParametersAreBoundedAsDescribed(t *testing.T) {
	h := newEnv(t)
	d, output := h.work("clerk", "0123456789")
	if err := h.RegisterWebhook(t.Context(), outbox.Webhook{Name: "hook", Origin: "https://hook.example"}); err != nil {
		t.Fatal(err)
	}
	answered := h.respond(`{"model":"clerk","input":"hi","background":true}`)
	h.dispatch("clerk").finish("done")
	ids := map[string]string{"/v1/outputs/{id}": string(output), "/v1/responses/{id}": answered.ID,
		"/v1/turns/{id}/events": fmt.Sprint(d.id)}
	// by parameter, or route
	needs := map[string]string{"starting_after": "stream=true", "getTranscript": "agent=clerk&conversation=main"}
	bodies := map[string]string{
		"postMessage":    `{"agent":"clerk","body":"%d"}`,
		"createResponse": `{"model":"clerk","input":"%d","background":true}`,
	}
	refusals := []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}
	tried := 0
	for _, route := range httpapi.New(httpapi.Config{}).Routes() {
		for _, p := range route.Parameters {
			if p.In == "path" {
				continue
			}
			for _, s := range samplesOf(t, p) {
				if tried++; p.Name == request.IdempotencyKey { // a key is not used twice
					s.value = string(rune('a'+tried%26)) + s.value[1:]
				}
				path := strings.NewReplacer("{id}", ids[route.Path], "{name}", "hook").Replace(route.Path)
				query, err := url.ParseQuery(needs[route.ID])
				if more, _ := url.ParseQuery(needs[p.Name]); err == nil {
					for name := range more {
						query.Set(name, more.Get(name))
					}
				}
				headers := []string{}
				if p.In == "header" {
					headers = []string{p.Name, s.value}
				} else {
					query.Set(p.Name, s.value)
				}
				body := bodies[route.ID]
				if body != "" {
					body = fmt.Sprintf(body, tried)
				}
				a := h.ask(route.Method, path+"?"+query.Encode(), body, headers...)
				refused := false
				for _, status := range refusals {
					refused = refused || a.status == status
				}
				if refused == s.within || s.within && a.status >= 400 {
					t.Errorf("%s %s with %s=%.30q (%d bytes): %d %.200s", route.Method, path, p.Name, s.value,
						len(s.value), a.status, a.body)
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d values were tried", tried)
	}
}

// Tags of fields cannot be made from constants.
func TestTagsHaveTheLimitsOfMessagesAndAsks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ route, field, schema string }{
		{"postMessage", "Priority",
			fmt.Sprintf("minimum=%d,maximum=%d,default=0", turnkeeper.MinPriority, turnkeeper.MaxPriority)},
		{"postMessage", "User", fmt.Sprintf("maxLength=%d", turnkeeper.MaxKeyLength)},
		{"answerAsk", "Comment", fmt.Sprintf("maxLength=%d", asks.MaxComment)},
	} {
		all := httpapi.New(httpapi.Config{}).Routes()
		route := slices.IndexFunc(all, func(r httpapi.Route) bool { return r.ID == c.route })
		field, ok := reflect.TypeOf(all[route].Body).FieldByName(c.field)
		if got := field.Tag.Get("schema"); !ok || got != c.schema {
			t.Errorf("%s of the body of %s: %q, want %q", c.field, c.route, got, c.schema)
		}
	}
}
