package redact_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"turnkeeper/internal/redact"
)

// TestPartsOfAText compares each part of a text with what is not secret of it.
func TestPartsOfAText(t *testing.T) {
	const text, secret = "say hush-hush-9 and sk-abcdefghijklmnopqrstuvwx, twice hush-hush-9", "hush-hush-9"
	masker := redact.New([]string{secret})
	whole := masker.String(text)
	if strings.Count(whole, redact.Placeholder) != 3 {
		t.Fatalf("it is %q", whole)
	}
	open := make([]bool, len(text)) // the bytes that are no secret
	for i := 0; i < len(text); {
		switch rest := text[i:]; {
		case strings.HasPrefix(rest, secret):
			i += len(secret)
		case strings.HasPrefix(rest, "sk-"):
			i += strings.Index(rest, ",")
		default:
			open[i] = true
			i++
		}
	}
	for from := range len(text) + 1 {
		for to := from; to <= len(text); to++ {
			want := ""
			for i := from; i < to; i++ {
				switch {
				case open[i]:
					want += text[i : i+1]
				case i == from || open[i-1]:
					want += redact.Placeholder
				}
			}
			if got := masker.Part(text, from, to); got != want {
				t.Fatalf("%d to %d is %q, want %q", from, to, got, want)
			}
		}
	}
	if got := masker.Part("nothing here", 3, 8); got != "hing " {
		t.Errorf("without a secret it is %q", got)
	}
}

// TestTextsThatWereCut cuts a text at each place: it is a beginning of the masked text, and only what may be the
// beginning of a secret is missing.
func TestTextsThatWereCut(t *testing.T) {
	const before, secret, after = "the word is ", "hush-hush-9", " and no more."
	masker := redact.New([]string{secret})
	text := before + secret + after
	whole := masker.String(text)
	for n := range len(text) + 1 {
		got := masker.Cut(text[:n])
		most := masker.String(text[:n])
		if !strings.HasPrefix(whole, got) || len(most)-len(got) >= len(secret) {
			t.Errorf("of %q it is %q", text[:n], got)
		}
	}
	if got := masker.Cut(text); got != whole {
		t.Errorf("of all it is %q", got)
	}
}

// TestTheQuickLookMissesNothing compares String, which returns most texts after a quick look, with a Stream, which
// takes none, over random texts of known secrets and of what looks like one, in letters of any case.
func TestTheQuickLookMissesNothing(t *testing.T) {
	parts := []string{
		"authorization", "bearer", "basic", "sk-", "gsk_", "xai-", "hf_", "ghp_", "http://", "https://", "user:",
		"hunter2@host", "abcdefghijklmnopqrstuvwx",
		"hush-hush-9", "hush", ": ", " ", ":", "\n", "é", "=",
	}
	masker := redact.New([]string{"hush-hush-9", "HUSH-hush-9"})
	random := rand.New(rand.NewPCG(1, 2))
	masked := 0
	for range 20_000 {
		var b strings.Builder
		for range 1 + random.IntN(7) {
			part := parts[random.IntN(len(parts))]
			switch random.IntN(4) {
			case 0:
				part = strings.ToUpper(part)
			case 1:
				part = strings.ToUpper(part[:1]) + part[1:]
			}
			b.WriteString(part)
		}
		text := b.String()
		stream := masker.Stream()
		want := stream.Write(text) + stream.Flush()
		if got := masker.String(text); got != want {
			t.Fatalf("%q becomes %q, and in a stream %q", text, got, want)
		}
		if want != text {
			masked++
		}
	}
	if masked < 1000 {
		t.Errorf("only %d texts have a secret", masked)
	}
}
