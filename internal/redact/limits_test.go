package redact_test

import (
	"strings"
	"testing"

	"turnkeeper/internal/limittest"
	"turnkeeper/internal/redact"
)

// TestLimits tries each limit of what counts as a secret. A text that is taken is masked.
func TestLimits(t *testing.T) {
	text := func(size int) string { return strings.Repeat("x", size) }
	masks := func(s string) bool { return strings.Contains(redact.New(nil).String(s), redact.Placeholder) }
	limittest.Check(t, map[string]limittest.Row{
		"Margin": {None: "it is for those who show a part of a text"},
		"MinLength": {At: 6, Least: true, Takes: func(_ *testing.T, n int) bool {
			short := strings.Repeat("ü", n) // in characters, not in bytes
			return redact.New([]string{short}).String("a "+short) == "a "+redact.Placeholder
		}},
		"MaxRegistered": {At: 65536, Takes: func(_ *testing.T, n int) bool {
			var alone, full redact.Register
			alone.Add(text(n))
			full.Add("first-" + text(94))
			full.Add("other-" + text(n-106))
			kept := redact.NewWith(nil, &full).String("first-"+text(94)) == redact.Placeholder
			if masked := redact.NewWith(nil, &alone).String(text(n)) == redact.Placeholder; masked != kept {
				t.Errorf("%d bytes at once are kept: %t, in two secrets: %t", n, masked, kept)
			}
			return kept
		}},
		"keyRest": {At: 16, Least: true, Takes: func(_ *testing.T, n int) bool { return masks("sk-" + text(n)) }},
		"bearerLeast": {At: 20, Least: true, Takes: func(_ *testing.T, n int) bool {
			return masks("Bearer " + text(n))
		}},
		"userMax": {At: 256, Takes: func(_ *testing.T, n int) bool {
			return masks("http://" + text(n) + ":hunter@host")
		}},
		"passwordMax": {At: 1024, Takes: func(_ *testing.T, n int) bool {
			return masks("http://user:" + text(n) + "@host")
		}},
		"colonMax": {At: 8, Takes: func(_ *testing.T, n int) bool {
			return masks("Authorization" + strings.Repeat(" ", n-1) + ":Bearer abc")
		}},
		"blankMax": {At: 4, Takes: func(_ *testing.T, n int) bool {
			return masks("Authorization: Bearer" + strings.Repeat(" ", n) + "abc")
		}},
		"schemeMax": {At: 9, Takes: func(_ *testing.T, n int) bool {
			return masks("Authorization: "+"negotiatexx"[:n]+" abc") || n == 8
		}},
		"none": {None: "it is no state"},
		"keyPrefixMax": {At: 11, Takes: func(_ *testing.T, n int) bool {
			return n != 11 && n < 12 || n == 11 && masks("github_pat_"+text(16)) // the longest prefix
		}},
	})
}
