package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

// TestStreamsOfATokenAreBounded checks that the streams of all routes together have a limit for each token, and that
// each end frees a place.
func TestStreamsOfATokenAreBounded(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Streams, c.NeedToken = 2, true })
	shop := h.token(operate.Token{Name: "shop", Scopes: []string{"send", "read"}})
	mall := h.token(operate.Token{Name: "mall", Scopes: []string{"send", "read"}})
	id := h.respond(`{"model":"desk","background":true,"input":"x"}`, "Authorization", shop).ID
	d := h.turn("clerk", "talk")
	message := one[int64](h, "select message_id from turnkeeper.turns where id = $1", d.id)
	routes := map[string][3]string{
		"of a turn":         {"GET", fmt.Sprintf("/v1/turns/%d/events", d.id)},
		"of a message":      {"GET", fmt.Sprintf("/v1/messages/%d/events", message)},
		"of a response":     {"GET", "/v1/responses/" + id + "?stream=true"},
		"of a new response": {"POST", "/v1/responses", `{"model":"desk","input":"y","stream":true}`},
		"of its drafts":     {"POST", "/v1/responses", `{"model":"desk","input":"z","stream":true}`},
	}
	open := func(what, token string) (status int, end func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, routes[what][0], h.base+routes[what][1],
			strings.NewReader(routes[what][2]))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", token)
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Content-Type", "application/json")
		if what == "of its drafts" {
			req.Header.Set("Turnkeeper-Drafts", "true")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, func() { cancel(); _ = resp.Body.Close() }
	}
	const ofShop = "select count(*) from turnkeeper.messages where sent_by = (select sent_by from turnkeeper.messages order by id limit 1)"
	// A place is free a moment after the client has left.
	reopen := func(what, token string) (end func()) {
		t.Helper()
		for {
			status, end := open(what, token)
			if status == http.StatusOK {
				return end
			}
			end()
			if status != http.StatusTooManyRequests {
				t.Fatalf("the stream %s is answered %d", what, status)
			}
			<-time.After(time.Millisecond)
		}
	}
	for first := range routes {
		ends := []func(){reopen(first, shop), reopen("of a turn", shop)}
		sent := one[int](h, ofShop)
		for what, route := range routes {
			a := h.ask(route[0], route[1], route[2], "Authorization", shop, "Accept", "text/event-stream")
			a.want(t, http.StatusTooManyRequests,
				"too many streams: the limit is 2 at once for each token; close some, or try again later")
			reopen(what, mall)() // another token has its own limit
		}
		if now := one[int](h, ofShop); now > sent {
			t.Errorf("a refused stream has sent a message: %d of %d", now, sent)
		}
		h.ask("GET", fmt.Sprintf("/v1/turns/%d/events", d.id), "", "Authorization", shop).want(t,
			http.StatusOK, `"items"`)
		for _, end := range ends {
			end()
		}
	}
	// The end of what is watched frees its place too, also by a cut connection.
	for range 3 {
		reopen("of a message", shop)()
	}
	keep := reopen("of a turn", shop)
	defer keep()
	d.finish("said")
	// it ends by itself
	for h.ask("GET", routes["of a message"][1], "", "Authorization", shop).status != http.StatusOK {
		<-time.After(time.Millisecond)
	}
	reopen("of a response", shop)()
}
