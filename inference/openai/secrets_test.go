package openai_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper/inference/openai"
)

// TestErrorsHoldNoSecretOfTheConfiguration checks that no error shows a secret of any setting, in any form in which a
// server may repeat it. It shows what is none.
func TestErrorsHoldNoSecretOfTheConfiguration(t *testing.T) {
	t.Parallel()
	secrets := map[string]string{
		"key": `of the "key" /+ü`, "header": "of-a-header", "token": "token-of-a-header", "user": "user-of-the-URL",
		"password": "password&of-the-URL",
		"query":    "of the base query", "parameter": "of-a-parameter",
	}
	base := &url.URL{Scheme: "http", Host: "h", Path: "/v1", User: url.UserPassword(secrets["user"],
		secrets["password"]), RawQuery: url.Values{"q": {secrets["query"]}}.Encode()}
	show := func(text string) string {
		client := newClient(t, openai.Config{
			Name: "p", BaseURL: base.String(), APIKey: openai.Secret(secrets["key"]),
			HTTPClient: &http.Client{Transport: refusing{status: http.StatusBadRequest, body: text}},
			Headers: map[string]openai.Secret{"X-Own": openai.Secret(secrets["header"]),
				"X-Auth": openai.Secret("Scheme " + secrets["token"]), "x-title": "a public title"},
			Query: map[string]openai.Secret{"p": openai.Secret(secrets["parameter"]), "API-version": "2099-version"},
		})
		_, err := client.Generate(t.Context(), question, nil)
		return err.Error()
	}
	secrets["basic authentication"] = secrets["user"] + ":" + secrets["password"]
	for name, secret := range secrets {
		quoted, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), string(quoted),
			base64.StdEncoding.EncodeToString([]byte(secret))} {
			if got := show("it was <" + form + ">"); !strings.Contains(got, "[redacted]") || strings.Contains(got,
				strings.Trim(form, `"`)) {
				t.Errorf("the %s %s is shown: %s", name, form, got)
			}
		}
	}
	for _, public := range []string{"a public title", "2099-version", "turnkeeper", "application/json"} {
		if got := show("it was <" + public + ">"); !strings.Contains(got, "<"+public+">") {
			t.Errorf("%s is not shown: %s", public, got)
		}
	}
	for text, want := range map[string]string{
		"Bearer abcdefgh": "Bearer [redacted]", "bearer abcdefg": "bearer abcdefg",
		"basic  QWxhZGRpbjp=": "basic [redacted]", "forbearer abcdefgh": "forbearer abcdefgh",
		"sk-abcdefghijkl": "[redacted]", "sk-abcdefghijk": "sk-abcdefghijk",
		"gsk_abcdefghijklm, hf-abcdefghijkl": "[redacted], [redacted]", "risk-abcdefghijkl": "risk-abcdefghijkl",
		"https://ann@h/p": "https://[redacted]@h/p", "HTTP://h/p?a=b&c=d)": "HTTP://h/p?[redacted])",
		"ftp://ann@h/?q": "ftp://ann@h/?q", "http://h/a@b": "http://h/a@b",
	} {
		if got := show(text); !strings.HasSuffix(got, ": "+want) {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}

// A counted body tells when it is closed.
type counted struct {
	io.Reader
	open *atomic.Int64
}

func (c counted) Close() error {
	c.open.Add(-1)
	return nil
}

// TestBodiesAreClosed checks that the body of each response is closed once the request has returned, with an answer and
// with an error.
func TestBodiesAreClosed(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`,
		`{"data":[{"id":"m"}]}`, `{"choices":[]}`, "", "{"} {
		for _, status := range []int{200, 302, 404, 500} {
			for name, request := range map[string]func(context.Context, *openai.Client) error{
				"answer": func(ctx context.Context, c *openai.Client) error {
					_, err := c.Generate(ctx, question, nil)
					return err
				},
				"models": func(ctx context.Context, c *openai.Client) error { _, _, err := c.Models(ctx); return err },
				"window": func(ctx context.Context, c *openai.Client) error {
					_, err := c.Window(ctx, "m")
					return err
				},
			} {
				for _, profile := range []string{"generic", "ollama", "llamacpp"} {
					var open atomic.Int64
					transport := roundTrip(func(r *http.Request) (*http.Response, error) {
						open.Add(1)
						return &http.Response{StatusCode: status,
							Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
							Body: counted{bytes.NewReader([]byte(answer)), &open}}, nil
					})
					p, _ := openai.ProfileNamed(profile)
					client := newClient(t, openai.Config{Name: "p", BaseURL: "http://h/v1", Profile: p,
						HTTPClient: &http.Client{Transport: transport}})
					err := request(t.Context(), client)
					if n := open.Load(); n != 0 {
						t.Errorf("%s of %s with status %d and %q (%v): %d bodies are open", name, profile, status,
							answer, err, n)
					}
				}
			}
		}
	}
}

// TestAnAnswerDoesNotWaitForItsConnection checks that a whole answer is returned a second later at the latest, although
// the server does not end the response.
func TestAnAnswerDoesNotWaitForItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stream = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			body := struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(stream), silent{r.Context().Done()}), silent{}}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
				Body: body, Request: r}, nil
		})
		client := newClient(t, openai.Config{Name: "p", BaseURL: "http://h/v1",
			HTTPClient: &http.Client{Transport: transport}})
		began := time.Now()
		res, err := client.Generate(t.Context(), question, nil)
		if took := time.Since(began); err != nil || res.Text != "x" || took > time.Second {
			t.Errorf("after %s: %+v, %v", took, res, err)
		}
	})
}
