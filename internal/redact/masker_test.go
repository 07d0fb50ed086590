package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"turnkeeper/internal/redact"
)

// secret contains characters that each encoding changes.
const secret = `p<ss "wörd"/+&%7`

func TestStringMasksEveryForm(t *testing.T) {
	m := redact.New([]string{secret})
	once, _ := json.Marshal(secret)
	twice, _ := json.Marshal(string(once))
	request, _ := http.NewRequest(http.MethodGet, "http://h", nil)
	request.SetBasicAuth("bob", secret)
	for name, text := range map[string]string{
		"itself":          "a " + secret + " b",
		"twice":           secret + " and " + secret,
		"as JSON":         string(once),
		"as JSON in JSON": string(twice),
		"quoted by Go":    fmt.Sprintf("%q %+q", secret, secret),
		"as a query":      "http://h/?k=" + url.QueryEscape(secret),
		"as a path":       "http://h/" + url.PathEscape(secret),
		"as user info":    url.UserPassword("", secret).String(),
		"in lower case": strings.NewReplacer("%3C", "%3c", "%C3%B6", "%c3%b6", "%2F", "%2f", "%2B", "%2b").Replace(
			url.QueryEscape(secret)),
		"base64":           base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64 for URLs":  base64.URLEncoding.EncodeToString([]byte(secret)),
		"base64, one on":   base64.StdEncoding.EncodeToString([]byte("x" + secret + "tail")),
		"base64, two on":   base64.StdEncoding.EncodeToString([]byte("xy" + secret)),
		"basic, no header": request.Header.Get("Authorization")[len("Basic "):],
	} {
		t.Run(name, func(t *testing.T) {
			got := m.String(text)
			if !strings.Contains(got, redact.Placeholder) {
				t.Fatalf("nothing is masked in %s", text)
			}
			for _, form := range []string{secret, "wörd", "w%C3%B6rd", `w\u00f6rd`,
				base64.StdEncoding.EncodeToString([]byte(secret))[4:12]} {
				if strings.Contains(got, form) {
					t.Errorf("%s still holds %s", got, form)
				}
			}
		})
	}
}

func TestString(t *testing.T) {
	m := redact.New([]string{"abcdef", "abcdefghij", "efghijklmn", "zabcdefz", "short", "Straße!"})
	for _, c := range []struct{ name, in, want string }{
		{"clean", "nothing to see", "nothing to see"},
		{"empty", "", ""},
		{"longest wins", "x abcdefghij y", "x [redacted] y"},
		{"shorter of two", "x abcdefgh y", "x [redacted]gh y"},
		{"overlap", "x abcdefghijklmn y", "x [redacted] y"},
		{"within the beginning of another", "zabcdefy", "z[redacted]y"},
		{"neighbours", "abcdefabcdef", "[redacted]"},
		{"two", "abcdef, abcdef", "[redacted], [redacted]"},
		{"too short a value", "short", "short"},
		{"not ASCII", "die Straße!.", "die [redacted]."},

		{"header", "Authorization: Bearer abc", "Authorization: Bearer [redacted]"},
		{"header of Go", "map[Authorization:[Bearer abc.def]]", "map[Authorization:[Bearer [redacted]]]"},
		{"header as JSON", `{"authorization": "Basic Ym9iOng="}`, `{"authorization": "Basic [redacted]"}`},
		{"header in a query", "authorization=Bearer%20abc&x=1", "authorization=Bearer%[redacted]&x=1"},
		{"header after a broken one", "Authorization: authorization: token t",
			"Authorization: authorization: token [redacted]"},
		{"word that repeats its beginning", "authorizauthorization: token t",
			"authorizauthorization: token [redacted]"},
		{"no scheme", "Authorization: none given", "Authorization: none given"},
		{"long bearer", "got Bearer 0123456789klmnopqrst.", "got Bearer [redacted]"},
		{"shouted bearer", "BEARER 0123456789klmnopqrst", "BEARER [redacted]"},
		{"prose about bearers", "Bearer authentication is used", "Bearer authentication is used"},

		{"key", "key sk-proj-0123456789klmnop!", "key [redacted]!"},
		{"key in JSON", `"a\nsk-0123456789klmnop"`, `"a\n[redacted]"`},
		{"GitHub", "ghp_0123456789klmnopqrst", "[redacted]"},
		{"too short for a key", "sk-learn and sk-0123", "sk-learn and sk-0123"},
		{"key within a word", "task-0123456789klmnopqrst", "task-0123456789klmnopqrst"},

		{"password in a URL", "postgres://bob:hunter@db:5432/x", "postgres://bob:[redacted]@db:5432/x"},
		{"password with @", "postgres://bob:hun@ter@db/x", "postgres://bob:[redacted]@db/x"},
		{"no user", "redis://:hunter@db", "redis://:[redacted]@db"},
		{"port, no password", "http://localhost:8080/a@b", "http://localhost:8080/a@b"},
		{"port at the end", "see http://localhost:8080", "see http://localhost:8080"},
		{"address in prose", "http://localhost:80 me@there", "http://localhost:80 me@there"},
		{"URL after a URL", "://http://bob:hunter@db", "://http://bob:[redacted]@db"},
		{"password of no length", "http://bob:@db", "http://bob:@db"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := m.String(c.in); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if got := string(m.Bytes([]byte(c.in))); got != c.want {
				t.Errorf("Bytes gave %q", got)
			}
		})
	}
}

func TestErrorKeepsWhatItWraps(t *testing.T) {
	m := redact.New([]string{"abcdef"})
	err := m.Error(fmt.Errorf("reading abcdef: %w", fs.ErrNotExist))
	if err.Error() != "reading [redacted]: file does not exist" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if fmt.Sprintf("%+v", err) != err.Error() {
		t.Errorf("%%+v prints %+v", err)
	}
	if got := m.Error(fs.ErrNotExist); got != fs.ErrNotExist { //nolint:errorlint // identity is meant
		t.Errorf("a clean error was changed: %v", got)
	}
	if m.Error(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestNilMaskerMasksLookalikes(t *testing.T) {
	var m *redact.Masker
	if got := m.String("a sk-0123456789abcdef"); got != "a [redacted]" {
		t.Errorf("got %q", got)
	}
}

func TestMaskerIsSafeForConcurrentUse(t *testing.T) {
	m := redact.New([]string{"abcdef"})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if got := m.String("x abcdef y"); got != "x [redacted] y" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	wg.Wait()
}

func TestCleanTextCostsNoAllocation(t *testing.T) {
	m := redact.New([]string{"abcdef"})
	text := strings.Repeat("a clean line of a log, https://example.com/x?y ", 20)
	if n := testing.AllocsPerRun(100, func() { m.String(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStreamHoldsBackOnlyWhatMayBeSecret(t *testing.T) {
	s := redact.New([]string{"abcdefgh"}).Stream()
	for _, step := range []struct{ in, out string }{
		{"hello ", "hello "}, {"abc", ""}, {"x", "abcx"}, {"abcd", ""}, {"efgh", "[redacted]"}, {" end", " end"},
		{" sk-0123456789abcdef", " [redacted]"}, {"ghij", ""}, {"!", "!"}, {" abc", " "},
	} {
		if got := s.Write(step.in); got != step.out {
			t.Errorf("Write(%q) = %q, want %q", step.in, got, step.out)
		}
	}
	if got := s.Flush(); got != "abc" {
		t.Errorf("Flush = %q", got)
	}
	if got := s.Write("abcdefgh") + s.Flush(); got != "[redacted]" {
		t.Errorf("after Flush: %q", got)
	}
}

func TestLongKeysTakeLinearTime(t *testing.T) {
	key := "sk-" + strings.Repeat("a", 4<<20)
	if got := redact.New(nil).String(key); got != redact.Placeholder {
		t.Errorf("got %d bytes", len(got))
	}
}

// TestStreamOverEverySplitEqualsString splits a text with every kind of secret at every pair of positions.
func TestStreamOverEverySplitEqualsString(t *testing.T) {
	m := redact.New([]string{"abcdef", "defghi", secret})
	text := "ab abcdefghi " + secret + " Authorization: Bearer xyz sk-0123456789abcdefgh " +
		"p://u:a@b@c/d p://u:a@b Bearer 0123456789abcdefghijk abcde " + base64.StdEncoding.EncodeToString(
		[]byte("u:"+secret))
	want := m.String(text)
	for i := range len(text) {
		for j := i; j < len(text); j++ {
			s := m.Stream()
			if got := s.Write(text[:i]) + s.Write(text[i:j]) + s.Write(text[j:]) + s.Flush(); got != want {
				t.Fatalf("cut at %d and %d:\ngot  %q\nwant %q", i, j, got, want)
			}
		}
	}
}

func FuzzMasker(f *testing.F) {
	f.Add("abcdef", "x ", " y abcde", uint16(3))
	f.Add("aaaaaa", "aaa", "aa", uint16(1))
	f.Add("ababababc", "abab", "ababc://a:b@c@d", uint16(7))
	f.Add("näch!t", "Authorization: Bear", "Bearer aaaaaaaaaaaaaaaaaaaaaaaa", uint16(9))
	f.Fuzz(func(t *testing.T, secret, before, after string, cut uint16) {
		m := redact.New([]string{secret})
		for _, form := range []string{secret, url.QueryEscape(secret),
			base64.StdEncoding.EncodeToString([]byte("u:" + secret))} {
			text := before + form + after + form
			got := m.String(text)
			if visible(secret) && strings.Contains(got, secret) {
				t.Fatalf("%q holds %q", got, secret)
			}
			s := m.Stream()
			var pieces strings.Builder
			for rest, n := text, int(cut%17)+1; rest != ""; {
				n = min(n, len(rest))
				pieces.WriteString(s.Write(rest[:n]))
				rest = rest[n:]
			}
			pieces.WriteString(s.Flush())
			if pieces.String() != got {
				t.Fatalf("stream %q, string %q", pieces.String(), got)
			}
			if utf8.ValidString(text) && !utf8.ValidString(got) {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}

// visible reports whether New promises to mask a value.
func visible(secret string) bool {
	return utf8.RuneCountInString(secret) >= redact.MinLength &&
		!strings.ContainsAny(secret, "[]") && !strings.Contains(redact.Placeholder, secret)
}

func BenchmarkString(b *testing.B) {
	m := redact.New([]string{"sk-proj-0123456789abcdefghijklmnopqrstuvwxyz", "postgres-password"})
	for name, line := range map[string]string{"clean": "a clean line of a log, with nothing in it ",
		"with addresses": "see https://example.com/x?y for more about it "} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(line, 200)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				m.String(text)
			}
		})
	}
}
