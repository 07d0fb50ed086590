package config_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/config"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/golden"
)

// A record tries values of settings, and writes down what becomes of each.
type record struct {
	t       *testing.T
	folder  string
	env     map[string]string
	keys    string // the texts of all private keys
	written strings.Builder
}

// newRecord makes a working directory with files of secrets, and variables.
func newRecord(t *testing.T) *record {
	r := &record{t: t, folder: t.TempDir()}
	t.Chdir(r.folder)
	edwards := ed25519.NewKeyFromSeed([]byte(strings.Repeat("e", ed25519.SeedSize)))
	r.env = map[string]string{
		"GOOD": "good-secret", "SPACED": "  good-secret\n", "BLANK": " \n", "TWO_LINES": "hush-1\nhush-2",
		"DELETE": "hush\x7f", "BEARER": "Bearer  good-token",
		"SIGN_23": signingOf(23), "SIGN_24": signingOf(24), "SIGN_64": signingOf(64), "SIGN_65": signingOf(65),
		"SIGN_PLAIN": strings.TrimPrefix(signingOf(24), "whsec_"), "SIGN_BAD": "whsec_hush!",
		"LOGIN_KEY": loginKey, "LOGIN_KEY_31": base64.StdEncoding.EncodeToString(make([]byte, 31)),
		"ADDRESS": "https://hush.example/hush-path",
		"KEY_ED":  keyText(t, edwards), "KEY_P256": keyText(t, ellipticKey(t, elliptic.P256())), "KEY_P224": keyText(t,
			ellipticKey(t, elliptic.P224())),
		"KEY_EC": sec1Text(t, ellipticKey(t, elliptic.P384())), "KEY_RSA": pkcs1Text(t),
		"KEY_NONE": "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n",
	}
	for name, text := range r.env {
		if strings.HasPrefix(name, "KEY_") {
			r.keys += text
		}
	}
	r.env["KEY_ESCAPED"] = strings.ReplaceAll(r.env["KEY_P256"], "\n", `\n`)
	for name, text := range map[string]string{
		"good.txt": "file-secret\n", "full.txt": strings.Repeat("f", 16<<10), "large.txt": strings.Repeat("l",
			16<<10+1), "empty.txt": "\n",
		"sign.txt": signingOf(32), "key.pem": r.env["KEY_P256"],
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func signingOf(size int) string {
	return config.WebhookSecretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", size)))
}

func ellipticKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(curve, slices.Concat(make([]byte, (curve.Params().BitSize+7)/8-1), []byte{7}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keyText(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func sec1Text(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func pkcs1Text(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// shows returns what settings print as: a line for each value in them that is not the zero value, with secrets
// revealed, and the secrets that maskers know.
func (r *record) shows(c *config.Config) (lines []string) {
	lines = r.values("", reflect.ValueOf(*c), nil)
	for _, secret := range c.Secrets() {
		lines = append(lines, "masked "+r.short(secret))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func (r *record) values(name string, v reflect.Value, lines []string) []string {
	if v.IsZero() {
		return lines
	}
	add := func(text string) []string { return append(lines, name+"="+r.short(text)) }
	switch value := v.Interface().(type) {
	case config.Secret:
		return add(value.Reveal())
	case config.DatabaseURL:
		return add(value.Reveal())
	case time.Duration:
		return add(value.String())
	case crypto.Signer:
		return add(fmt.Sprintf("%T", value))
	case config.MCPIdentity:
		token, err := value.Token()
		lines = append(lines, fmt.Sprintf("%s.Token=%s, %v", name, token.Reveal(), err))
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.Elem().Kind() != reflect.Struct {
			return add(fmt.Sprint(v.Elem()))
		}
		return r.values(name, v.Elem(), lines)
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.IsExported() && field.Name != "File" && field.Name != "IDToken" {
				lines = r.values(strings.TrimPrefix(name+"."+field.Name, "."), value, lines)
			}
		}
		return lines
	case reflect.Map:
		lines = append(lines, fmt.Sprintf("%s has %d", name, v.Len()))
		for key, value := range v.Seq2() {
			lines = r.values(fmt.Sprintf("%s.%v", name, key), value, lines)
		}
		return lines
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return add(string(v.Bytes()))
		}
		for i, value := range v.Seq2() {
			lines = r.values(fmt.Sprintf("%s.%v", name, i), value, lines)
		}
		return append(lines, fmt.Sprintf("%s has %d", name, v.Len()))
	}
	return add(fmt.Sprint(v))
}

// short shortens a long text, and hides what is not the same each time.
func (r *record) short(text string) string {
	if len(text) > 8 && strings.Contains(r.keys, text) {
		return "a line of a key"
	}
	text = strings.ReplaceAll(text, r.folder, "DIR")
	if len(text) > 100 {
		return fmt.Sprintf("%s... (%d bytes)", text[:8], len(text))
	}
	return strings.ReplaceAll(text, "\n", `\n`)
}

// faults returns the lines of an error. None may repeat a secret.
func (r *record) faults(err error) (lines []string) {
	for _, fault := range strictyaml.Split(err) {
		line := strings.ReplaceAll(fault.Error(), r.folder, "DIR")
		if strings.Contains(line, "hush") {
			r.t.Errorf("a fault repeats a secret: %s", line)
		}
		lines = append(lines, line)
	}
	return lines
}

var span = regexp.MustCompile(`^(?:0, or )?(\S+) to (\S+?)(?: .*)?$`)

// limitsOf returns the limits of a number or duration, and what lies directly inside and outside.
func limitsOf(t *testing.T, kind, bounds string) []string {
	found := span.FindStringSubmatch(bounds)
	if found == nil {
		return nil
	}
	var list []string
	for i, at := range found[1:] {
		for _, step := range []int64{-1, 0, 1} {
			if step*int64(1-2*i) > 0 { // further inside
				continue
			}
			if kind == "duration" {
				limit, err := strictyaml.ParseDuration(at)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, (limit + time.Duration(step)).String())
				continue
			}
			limit, err := strictyaml.ParseInt(at)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, fmt.Sprint(limit+step))
		}
	}
	return list
}

// TestEverySettingWithEveryKindOfValue records what becomes of good and bad values of each setting, from each place.
func TestEverySettingWithEveryKindOfValue(t *testing.T) {
	r := newRecord(t)
	byType := map[string][]string{
		"whole number":  {"", "x", "-1", "010", "1.5", "99999999999999999999"},
		"duration":      {"", "soon", "0", "90", "1h30m", "-1s"},
		"true or false": {"", "true", "false", "yes", "True"},
		"list": {"", "api", "all", " worker , api,worker", "all,cook",
			"b.example, A.Example,b.example", "a b"},
		"text": {"", " ", "x", "demo/other", "a/b", "127.0.0.1:80", ":80", "h:65535", "h:65536", "warn",
			"json", "ask"},
	}
	byName := map[string][]string{
		"database_url": {"postgres://u:hush@h/d", "host=h password=hush", "postgres://u:hush@h:x", "mysql://u:hush@h/d",
			"host=h"}, "otlp_endpoint": {"http://c:4318"},
	}
	inEnv := map[string]string{}
	for _, s := range config.Settings() {
		fmt.Fprintf(&r.written, "--%s: %s (%s; %s)\n", s.Flag, s.Usage(), s.Type, s.AlsoEnv)
		for _, value := range slices.Concat(byType[s.Type], limitsOf(t, s.Type, s.Bounds), byName[s.Name]) {
			c, err := config.Load(config.LoadOptions{Env: env(nil), Flags: map[string]string{s.Flag: value}})
			if err == nil {
				fmt.Fprintf(&r.written, "  %q becomes %q\n", value, s.Value(c))
			}
			for _, fault := range r.faults(err) {
				fmt.Fprintf(&r.written, "  %s\n", fault)
			}
		}
		if s.Name != "config" {
			inEnv[s.Env] = "-"
		}
	}
	_, err := config.Load(config.LoadOptions{Env: env(inEnv)})
	fmt.Fprintf(&r.written, "each variable is -\n  %s\n", strings.Join(r.faults(err), "\n  "))
	for _, value := range []string{"[api, worker]", "[1]", "{a: b}", "5", "true", "text", "\"\"", "~"} {
		r.file(value)
		_, err := config.Load(config.LoadOptions{File: "settings.yaml", Env: env(nil)})
		fmt.Fprintf(&r.written, "each key is %s\n  %s\n", value, strings.Join(r.faults(err), "\n  "))
	}
	golden.File(t, filepath.Join(sourceFolder, "testdata", "settings.txt"), r.written.String())
}

// sourceFolder is the folder of this package: the tests change the working directory.
var sourceFolder, _ = filepath.Abs(".")

// file writes a config file that gives each setting a value.
func (r *record) file(value string) {
	var text strings.Builder
	above := ""
	for _, s := range config.Settings() {
		group, key, grouped := strings.Cut(s.Name, ".")
		switch {
		case !grouped:
			fmt.Fprintf(&text, "%s: %s\n", s.Name, value)
		case group != above:
			fmt.Fprintf(&text, "%s:\n  %s: %s\n", group, key, value)
		default:
			fmt.Fprintf(&text, "  %s: %s\n", key, value)
		}
		above = group
	}
	if err := os.WriteFile("settings.yaml", []byte(text.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
}
