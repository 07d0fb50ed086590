package webhooks

import (
	"net/url"
	"strings"

	"turnkeeper/internal/redact"
)

// concealer returns a function that masks what an address has after its host: the whole, each segment of its path and
// each value of its query. An endpoint may repeat any of them in its answer.
func concealer(address string) func(string) string {
	u, err := url.Parse(address)
	if err != nil {
		return func(text string) string { return text }
	}
	pieces := []string{u.RequestURI(), u.Path, u.RawQuery, u.Fragment}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		plain, _ := url.PathUnescape(segment) // it is valid, or url.Parse would have failed
		pieces = append(pieces, segment, plain)
	}
	for _, values := range u.Query() {
		pieces = append(pieces, values...)
	}
	return redact.New(pieces).String
}

// mask returns a text that the endpoint sent, or an error of a request to it, without secrets.
func (e *endpoint) mask(text string) string { return e.conceal(e.Mask(text)) }
