package inference

import (
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/limittest"
)

// TestLimits tries each limit of the retries and of the reasoning within a text.
func TestLimits(t *testing.T) {
	first := func(attempt int) time.Duration { // the longest pause after an attempt
		return (&loop{Retry: Retry{Jitter: func() float64 { return 1 }}}).pause(attempt, &Error{Class: ClassOverloaded})
	}
	overloaded := &Error{Class: ClassOverloaded}
	limittest.Check(t, map[string]limittest.Row{
		"defaultMaxAttempts": {At: 3, Takes: func(_ *testing.T, n int) bool {
			return tries{max: (&loop{}).maxAttempts()}.again(overloaded, n) // a fourth attempt follows the third
		}},
		"defaultMaxBadOutput": {At: 2, Takes: func(_ *testing.T, n int) bool { return n <= (&loop{}).maxBadOutput() }},
		"defaultBackoff": {At: 500, Least: true, Takes: func(_ *testing.T, n int) bool {
			return time.Duration(n)*time.Millisecond >= first(1)
		}},
		"defaultMaxBackoff": {At: 8000, Least: true, Takes: func(_ *testing.T, n int) bool {
			return time.Duration(n)*time.Millisecond >= first(30)
		}},
		"MaxRetryAfter": {At: 2000, Takes: func(_ *testing.T, n int) bool {
			return !(&Error{Class: ClassRateLimited, RetryAfter: time.Duration(n) * time.Millisecond}).Lasting()
		}},
		"maxTag": {Test: "TestTheLongestTags"},
		// n bytes of a block after text, without its end
		"maxMiddle": {At: 64 << 10, Takes: func(_ *testing.T, n int) bool {
			s := NewSpeech(PlainHabit(), false, func(DeltaKind, string) {})
			s.Add("text <think>")
			s.Add(strings.Repeat("x", n))
			s.Add("</think> more")
			s.Close(false)
			s.End(true)
			return s.Text() == "text  more"
		}},
		"habitPlain": {None: "it numbers the habits"},
	})
}

// TestTheLongestTags checks that each tag, with quotation marks and in several bytes a character, is shorter than
// maxTag: that is how much of a text is held back.
func TestTheLongestTags(t *testing.T) {
	for _, pair := range tagPairs {
		for _, tag := range []string{pair.open, pair.end} {
			if n := len("`" + tag + "`"); n >= maxTag || maxTag > 32 {
				t.Errorf("%s has %d bytes", tag, n)
			}
		}
	}
}
