package webhooks

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// minPiece is the length in bytes below which a piece of an address is no secret, as in package redact.
const minPiece = 6

// concealer returns a function that replaces what an address has after its host: as a whole, and each segment of the path and
// each value of the query, escaped or not. An endpoint may repeat any of them in its answer.
func concealer(address string) func(string) string {
	u, err := url.Parse(address)
	if err != nil {
		return func(text string) string { return text }
	}
	pieces := []string{u.RequestURI(), u.Path, u.EscapedPath(), u.RawQuery, u.Fragment}
	pieces = slices.Concat(pieces, strings.Split(u.Path, "/"), strings.Split(u.EscapedPath(), "/"))
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		pieces = append(pieces, value)
	}
	for _, values := range u.Query() {
		pieces = append(pieces, values...)
	}
	pieces = slices.DeleteFunc(pieces, func(p string) bool { return len(p) < minPiece })
	slices.SortFunc(pieces, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // the longest that fits
	var replaced []string
	for _, piece := range slices.Compact(pieces) {
		replaced = append(replaced, piece, "[redacted]")
	}
	return strings.NewReplacer(replaced...).Replace
}

// mask returns a text that the endpoint sent, or an error of a request to it, without secrets.
func (e *endpoint) mask(text string) string { return e.conceal(e.Mask(text)) }
