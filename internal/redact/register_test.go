package redact_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/internal/redact"
)

func TestWhatIsLearntIsMasked(t *testing.T) {
	var register redact.Register
	masker := redact.NewWith([]string{"settled-secret"}, &register)
	const token = "token-that-came-later"
	text := "a settled-secret and a " + token
	if got := masker.String(text); got != "a [redacted] and a "+token {
		t.Errorf("before: %s", got)
	}
	register.Add(token)
	if got := masker.String(text); got != "a [redacted] and a [redacted]" {
		t.Errorf("after: %s", got)
	}
	if got := redact.NewWith(nil, &register).String(text); got != "a settled-secret and a [redacted]" {
		t.Errorf("another masker: %s", got)
	}
}

func TestARegisterDropsTheOldest(t *testing.T) {
	var register redact.Register
	masker := redact.NewWith(nil, &register)
	value := func(i int) string { return fmt.Sprintf("%04d%s", i, strings.Repeat("x", 1020)) }
	const fit = redact.MaxRegistered / 1024
	for i := range fit {
		register.Add(value(i))
	}
	register.Add(value(0)) // makes it the newest again
	register.Add(value(fit))
	for i, want := range map[int]bool{0: true, 1: false, 2: true, fit: true} {
		if got := masker.String(value(i)) == redact.Placeholder; got != want {
			t.Errorf("value %d is masked: %t, want %t", i, got, want)
		}
	}
	register.Add(strings.Repeat("y", redact.MaxRegistered+1))
	if masker.String(value(0)) != redact.Placeholder {
		t.Error("one that is too large drove out the others")
	}
}
