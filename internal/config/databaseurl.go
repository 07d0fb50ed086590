package config

import (
	"errors"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
)

// A DatabaseURL is how to reach Postgres: a URL postgres://..., or words
// host=... user=.... It prints with its passwords masked, everywhere that a
// Secret would.
type DatabaseURL struct {
	value Secret
}

// secretWords are the words of a connection string that hold a secret.
var secretWords = []string{"password", "sslpassword"}

var (
	wordForm   = regexp.MustCompile(`^\s*[a-z_]+\s*=`)
	secretWord = regexp.MustCompile(`((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s'\\]|\\.)+)`)
	unescape   = regexp.MustCompile(`\\(.)`)
)

// urlForm says what a URL of a database looks like. Brackets stand around the parts
// because a mask over errors takes what stands between a bare : and @ for a password.
const urlForm = "postgres://<user>:<password>@<host>:<port>/<database>"

// NewDatabaseURL checks the form; the server is not asked. The error does not
// hold the text.
func NewDatabaseURL(text string) (DatabaseURL, error) {
	d := DatabaseURL{value: NewSecret(text)}
	if d.isURL() {
		if _, err := url.Parse(text); err != nil {
			return DatabaseURL{}, errors.New("it is not a URL: write " + urlForm + ", and % codes for special characters in the password")
		}
		return d, nil
	}
	if text != "" && !wordForm.MatchString(text) {
		return DatabaseURL{}, errors.New("it must be " + urlForm + ", or words such as host=<host> user=<user> dbname=<database>")
	}
	return d, nil
}

// Reveal is the whole text, password included.
func (d DatabaseURL) Reveal() string { return d.value.Reveal() }

// IsSet says that there is one.
func (d DatabaseURL) IsSet() bool { return d.value.IsSet() }

// Equal compares the whole texts.
func (d DatabaseURL) Equal(other DatabaseURL) bool { return d.value.Equal(other.value) }

func (d DatabaseURL) isURL() bool {
	text := d.Reveal()
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// String is the text with [redacted] in place of each password.
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
	const mark = "TURNKEEPER-MASK" // survives the encoding of URLs
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

// GoString is as String.
func (d DatabaseURL) GoString() string { return d.String() }

// MarshalText gives String. It also serves encoding/json.
func (d DatabaseURL) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// LogValue gives String.
func (d DatabaseURL) LogValue() slog.Value { return slog.StringValue(d.String()) }

// secrets lists the passwords, as written and as meant.
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

// rawUserinfo is what stands between :// and the last @ of the authority.
func rawUserinfo(text string) string {
	_, rest, _ := strings.Cut(text, "://")
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	return authority[:max(0, strings.LastIndex(authority, "@"))]
}
