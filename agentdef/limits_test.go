package agentdef_test

import (
	"strings"
	"testing"

	"turnkeeper/agentdef"
	"turnkeeper/internal/limittest"
)

// TestLimits tries each limit of an agent's file.
func TestLimits(t *testing.T) {
	parses := func(t *testing.T, source string) bool {
		_, err := agentdef.Parse("a.md", []byte(source))
		if err != nil {
			t.Logf("%.300s", err)
		}
		return err == nil
	}
	wide := func(size int) string { return strings.Repeat("ü", size) }
	limittest.Check(t, map[string]limittest.Row{
		"MaxSize": {At: 1 << 20, Takes: func(t *testing.T, n int) bool {
			head := "---\ntools: []\n---\n"
			return parses(t, head+strings.Repeat("x", n-len(head)))
		}},
		"maxQuietReply": {At: 200, Takes: func(t *testing.T, n int) bool {
			return parses(t, "---\nschedule: {cron: \"@daily\"}\nquiet_reply: "+wide(n)+"\n---\nDo.\n")
		}},
		"maxFixedReply": {At: 2000, Takes: func(t *testing.T, n int) bool {
			degraded, failed := parses(t, "---\non_degraded: "+wide(n)+"\n---\nDo.\n"),
				parses(t, "---\non_failed: "+wide(n)+"\n---\nDo.\n")
			if degraded != failed {
				t.Errorf("%d characters are taken of on_degraded: %t, of on_failed: %t", n, degraded, failed)
			}
			return failed
		}},
		"DefaultOutputTokens": {Test: "TestParseReadsEveryKey"},
	})
}
