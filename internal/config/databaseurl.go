package config

import (
	"errors"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
)

// A DatabaseURL is a connection string of Postgres: a URL postgres://..., or key=value pairs such as
// host=... user=.... It always prints with its passwords masked, like a Secret.
type DatabaseURL struct {
	value Secret
}

// secretWords are the keys of a connection string whose values are secret.
var secretWords = []string{"password", "sslpassword"}

var (
	wordForm   = regexp.MustCompile(`^\s*[a-z_]+\s*=`)
	secretWord = regexp.MustCompile(`((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s'\\]|\\.)+)`)
	unescape   = regexp.MustCompile(`\\(.)`)
)

// urlForm shows the form of a database URL. The parts are in angle brackets because the masker of errors
// takes text between a bare : and @ for a password.
const urlForm = "postgres://<user>:<password>@<host>:<port>/<database>"

// NewDatabaseURL checks the form of a connection string without connecting. Errors do not contain the
// text.
func NewDatabaseURL(text string) (DatabaseURL, error) {
	d := DatabaseURL{value: NewSecret(text)}
	if d.isURL() {
		if _, err := url.Parse(text); err != nil {
			return DatabaseURL{}, errors.New("it is not a valid URL: write " + urlForm +
				", with special characters in the password percent-encoded")
		}
		return d, nil
	}
	if text != "" && !wordForm.MatchString(text) {
		return DatabaseURL{}, errors.New("it must be " + urlForm +
			", or pairs such as host=<host> user=<user> dbname=<database>")
	}
	return d, nil
}

// Reveal returns the whole text with its passwords.
func (d DatabaseURL) Reveal() string { return d.value.Reveal() }

// IsSet reports whether the text is not empty.
func (d DatabaseURL) IsSet() bool { return d.value.IsSet() }

// Equal compares the whole texts.
func (d DatabaseURL) Equal(other DatabaseURL) bool { return d.value.Equal(other.value) }

func (d DatabaseURL) isURL() bool {
	text := d.Reveal()
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// String returns the text with [redacted] in place of each password.
func (d DatabaseURL) String() string {
	if !d.isURL() {
		return secretWord.ReplaceAllString(d.Reveal(), "${1}"+redacted)
	}
	u, err := url.Parse(d.Reveal())
	if err != nil {
		return redacted
	}
	return maskURL(u)
}

func maskURL(u *url.URL) string {
	const mark = "TURNKEEPER-MASK" // unchanged by URL encoding
	if _, ok := u.User.Password(); ok {
		u.User = url.UserPassword(u.User.Username(), mark)
	}
	query := u.Query()
	for _, word := range secretWords {
		if query.Has(word) {
			query.Set(word, mark)
			u.RawQuery = query.Encode()
		}
	}
	return strings.ReplaceAll(u.String(), mark, redacted)
}

// GoString returns String.
func (d DatabaseURL) GoString() string { return d.String() }

// MarshalText returns String. encoding/json uses it too.
func (d DatabaseURL) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// LogValue returns String.
func (d DatabaseURL) LogValue() slog.Value { return slog.StringValue(d.String()) }

// secrets returns the passwords, as written and decoded.
func (d DatabaseURL) secrets() []string {
	if !d.isURL() {
		var secrets []string
		for _, found := range secretWord.FindAllStringSubmatch(d.Reveal(), -1) {
			plain := strings.TrimSuffix(strings.TrimPrefix(found[2], "'"), "'")
			secrets = append(secrets, plain, unescape.ReplaceAllString(plain, "$1"))
		}
		return secrets
	}
	u, err := url.Parse(d.Reveal())
	if err != nil {
		return []string{d.Reveal()}
	}
	var secrets []string
	if password, ok := u.User.Password(); ok {
		_, written, _ := strings.Cut(rawUserinfo(d.Reveal()), ":")
		secrets = append(secrets, password, written)
	}
	for _, word := range secretWords {
		secrets = append(secrets, u.Query()[word]...)
	}
	return secrets
}

// rawUserinfo returns the text between :// and the last @ of the authority, not decoded.
func rawUserinfo(text string) string {
	_, rest, _ := strings.Cut(text, "://")
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	return authority[:max(0, strings.LastIndex(authority, "@"))]
}
