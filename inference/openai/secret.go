package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const redacted = "[redacted]"

// A Secret is a text that formatting replaces by [redacted].
type Secret string

// Format prints [redacted] for every verb, and nothing for an empty secret.
func (s Secret) Format(f fmt.State, _ rune) {
	if s != "" {
		_, _ = f.Write([]byte(redacted))
	}
}

// MarshalText returns [redacted], which encoders use.
func (s Secret) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%v", s), nil }

// A mask removes known secrets, and texts that look like secrets.
type mask struct {
	known *strings.Replacer
	forms []string // that it replaces
}

// minSecret is the minimum length of a secret, in bytes. A shorter key ("x", "EMPTY") is a
// placeholder, and masking it would make errors unreadable.
const minSecret = 6

// newMask returns a mask of the secrets, also as encoded in URLs, JSON and basic
// authentication.
func newMask(secrets ...string) mask {
	var forms []string
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		quoted, _ := json.Marshal(s) //nolint:errchkjson // a string always marshals
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`),
			base64.StdEncoding.EncodeToString([]byte(s)))
	}
	// The replacer uses the first match. Longer forms come first, because a key may be the
	// beginning of another.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, form := range forms {
		pairs = append(pairs, form, redacted)
	}
	return mask{strings.NewReplacer(pairs...), forms}
}

var (
	bearer   = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}`)
	apiKey   = regexp.MustCompile(`\b(?:sk|rk|pk|gsk|xai|hf)[-_][A-Za-z0-9_-]{12,}`)
	userinfo = regexp.MustCompile(`(?i)\b(https?://)[^\s/?#"'<>@]+@`)
	query    = regexp.MustCompile(`(?i)\b(https?://[^\s?#"'<>]+)\?[^\s"'<>)]*`)
)

func (m mask) text(s string) string {
	s = m.known.Replace(s)
	s = bearer.ReplaceAllString(s, "$1 "+redacted)
	s = apiKey.ReplaceAllString(s, redacted)
	s = userinfo.ReplaceAllString(s, "$1"+redacted+"@")
	return query.ReplaceAllString(s, "$1?"+redacted)
}

// minCut is the minimum number of bytes of a secret that are masked at the end of a text.
const minCut = 4

// end masks the beginning of a known secret at the end of a text, which may have been cut within it.
func (m mask) end(s string) string {
	longest := 0
	for _, form := range m.forms {
		for n := min(len(form)-1, len(s)); n >= minCut && n > longest; n-- {
			if strings.HasSuffix(s, form[:n]) {
				longest = n
			}
		}
	}
	if longest == 0 {
		return s
	}
	return s[:len(s)-longest] + redacted
}

// Limits of an error's text, in bytes.
const (
	maxDetailSource = 64 << 10
	maxDetail       = 2 << 10
)

// detail returns a text from outside for an error: masked, on one line, valid UTF-8, and at
// most maxDetail bytes. Whoever cut the text before may have cut a secret, so its end is masked too.
func (m mask) detail(s string) string {
	if len(s) > maxDetailSource {
		s = s[:maxDetailSource]
	}
	s = m.text(strings.ToValidUTF8(s, "\uFFFD"))
	s = m.end(strings.TrimRightFunc(s, func(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) }))
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if len(s) <= maxDetail {
		return s
	}
	cut := maxDetail - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// public holds the headers whose values are not secret.
var public = map[string]bool{"Http-Referer": true, "X-Title": true, "User-Agent": true, "Accept": true,
	"Anthropic-Version": true, "Anthropic-Beta": true}

// headerSecrets returns the value and, if it begins with a scheme, the rest of it.
func headerSecrets(value string) []string {
	found := []string{value}
	if _, rest, ok := strings.Cut(value, " "); ok {
		found = append(found, strings.TrimSpace(rest))
	}
	return found
}
