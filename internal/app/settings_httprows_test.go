package app_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"turnkeeper/asks"
	"turnkeeper/storage/operate"
)

// token returns a new token's secret.
func (k talk) token(name string, scopes ...string) string {
	k.t.Helper()
	_, secret, err := k.db.CreateToken(k.t.Context(), operate.Token{Name: k.agent + "-" + name, Scopes: scopes})
	if err != nil {
		k.t.Fatal(err)
	}
	return secret
}

// call sends a request to the API as a token, and returns the answer, whose body the test's end closes.
func (k talk) call(token, method, path, body, host string) *http.Response {
	k.t.Helper()
	r, err := http.NewRequestWithContext(k.t.Context(), method, k.ready.API+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Host = host
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		k.t.Fatal(err)
	}
	return answer
}

// status returns the status of a whole answer.
func (k talk) status(token, method, path, body, host string) string {
	answer := k.call(token, method, path, body, host)
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, answer.Body)
	return fmt.Sprint(answer.StatusCode)
}

func httpRows() []workerRow {
	return []workerRow{
		{name: "listen", values: [2]string{"127.0.0.1:0", "127.0.0.2:0"}, see: func(k talk) string {
			return strings.Split(strings.TrimPrefix(k.ready.API, "http://"), ":")[0]
		}, want: [2]string{"127.0.0.1", "127.0.0.2"}},
		{name: "allowed_hosts", values: [2]string{"first.example", "second.example"}, see: func(k talk) string {
			token := k.token("reader", "read")
			return k.status(token, http.MethodGet, "/v1/agents", "", "first.example") + " " +
				k.status(token, http.MethodGet, "/v1/agents", "", "second.example")
		}, want: [2]string{"200 421", "421 200"}},
		{name: "http_rate", values: [2]string{"3", "2000"}, see: func(k talk) string {
			token := k.token("reader", "read")
			for range 20 {
				if k.status(token, http.MethodGet, "/v1/agents", "", "") == "429" {
					return "429"
				}
			}
			return "200"
		}, want: [2]string{"429", "200"}},
		{name: "http_streams", values: [2]string{"1", "2"}, with: "tools: [meet]", see: func(k talk) string {
			id, token, all := k.send("do: meet {} | say so"), k.token("reader", "read", "send"), []string{}
			defer k.drop(id)
			for range 3 {
				answer := k.call(token, http.MethodGet, fmt.Sprintf("/v1/messages/%d/events", id), "", "")
				defer func() { _ = answer.Body.Close() }()
				all = append(all, fmt.Sprint(answer.StatusCode))
			}
			return strings.Join(all, " ")
		}, want: [2]string{"200 429 429", "200 200 429"}},
		{name: "four_eyes", values: [2]string{"true", "false"}, with: "tools: [act]\napprove: {act: always}",
			see: func(k talk) string {
				token := k.token("sender", "send")
				k.status(token, http.MethodPost, "/v1/messages",
					fmt.Sprintf(`{"agent":%q,"body":"do: act {\"text\":\"x\"} | say so"}`, k.agent), "")
				var open []operate.Ask
				k.until(func() bool {
					open, _ = k.db.ListAsks(k.t.Context(), operate.AskFilter{Agent: k.agent, State: asks.Open})
					return len(open) > 0
				})
				// no token may be created with both
				k.db.Exec("update turnkeeper.api_tokens set scopes = '{answer}' where name = $1", k.agent+"-sender")
				return k.status(token, http.MethodPost, fmt.Sprintf("/v1/asks/%d/answer", open[0].ID),
					fmt.Sprintf(`{"decision":"denied","hash":%q}`, open[0].Hash), "")
			}, want: [2]string{"403", "200"}},
	}
}
