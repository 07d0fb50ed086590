package messages_test

import (
	"net/http"
	"testing"

	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/messages"
)

// A recorder keeps the requests that it answers.
type recorder struct {
	server
	got []*http.Request
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.got = append(r.got, req)
	if req.Method == http.MethodGet {
		req.Body = http.NoBody
		return whole(200, `{"data":[{"id":"claude-x","max_input_tokens":200000}]}`).RoundTrip(req)
	}
	return r.server.RoundTrip(req)
}

// TestWhereRequestsGo checks addresses and headers. Those of the settings win.
func TestWhereRequestsGo(t *testing.T) {
	r := &recorder{server: *whole(200, `{"content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`)}
	for base, headers := range map[string]map[string]openai.Secret{
		"": nil, "http://h/anthropic/v1/": {"Anthropic-Version": "2099-01-01", "Anthropic-Beta": "b",
			"X-Api-Key": "own"},
	} {
		c, err := openai.New(openai.Config{Name: "p", BaseURL: base, APIKey: "the-key", Headers: headers,
			Profile: openai.Profile{API: openai.APIMessages}, Read: messages.Read,
			HTTPClient: &http.Client{Transport: r}})
		if err != nil {
			t.Fatal(err)
		}
		r.got = nil
		if _, err := c.Generate(t.Context(), request, nil); err != nil {
			t.Error(err)
		}
		if all, known, err := c.Models(t.Context()); len(all) != 1 || all[0].Window != 200000 || !known || err != nil {
			t.Errorf("the list is %+v, %v, %v", all, known, err)
		}
		at, version, key := "https://api.anthropic.com/v1/", "2023-06-01", "the-key"
		if headers != nil {
			at, version, key = "http://h/anthropic/v1/", "2099-01-01", "own"
		}
		for _, got := range r.got {
			h := got.Header
			if h.Get("Anthropic-Version") != version || h.Get("X-Api-Key") != key || h.Get("Authorization") != "" ||
				h.Get("Anthropic-Beta") != string(headers["Anthropic-Beta"]) {
				t.Errorf("%s has the headers %v", got.URL, h)
			}
			if where := got.URL.String(); where != at+map[string]string{"GET": "models?limit=1000",
				"POST": "messages"}[got.Method] {
				t.Errorf("asked %s", where)
			}
		}
	}
}
