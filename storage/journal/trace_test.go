package journal_test

import (
	"strings"
	"testing"

	"turnkeeper/internal/traceparent"
	"turnkeeper/storage/storagetest"
)

// The SQL function stores a traceparent of at most 256 bytes that the Go code accepts, and drops any
// other text.
func TestEnqueueKeepsTraceContextsOnly(t *testing.T) {
	h := newEnv(t)
	const (
		trace = "0af7651916cd43dd8448eb211c80319c"
		span  = "b7ad6b7169203331"
		whole = "00-" + trace + "-" + span + "-01"
	)
	for _, text := range []string{
		whole, "00-" + trace + "-" + span + "-ff", "01-" + trace + "-" + span + "-01", "cc-" + trace + "-" + span +
			"-01-more.\n", "cc-" + trace + "-" + span + "-01-",
		"", "garbage", strings.ToUpper(whole), whole + "-more", whole + " ", whole + "\n", " " + whole, "ff-" + trace +
			"-" + span + "-01", "0-" + trace + "-" + span + "-01",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01",
		"00-" + trace + "-" + span + "-0g",
		"00-" + trace + "-" + span, "01-" + trace + "-" + span + "-01more", "cc-" + trace + "-" + span + "-01-A",
		"cc-" + trace + "-" + span + "-01-" + strings.Repeat("m", 200), "cc-" + trace + "-" + span + "-01-" +
			strings.Repeat("m", 201), strings.Replace(whole, "-", "_", 1),
	} {
		want := ""
		if _, ok := traceparent.Parse(text); ok && len(text) <= 256 {
			want = text
		}
		id := storagetest.One[int64](h, "select turnkeeper.enqueue('clerk', 'x', trace_parent => $1)", text)
		got := storagetest.One[string](h, "select coalesce(trace_parent, '') from turnkeeper.messages where id = $1",
			id)
		if got != want {
			t.Errorf("of %q is kept %q, want %q", text, got, want)
		}
	}
}
