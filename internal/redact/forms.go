package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// forms returns the encodings of a secret to search for.
func forms(secret string) []string {
	list := []string{secret, strings.TrimSpace(secret)}
	once := jsonForms(secret)
	list = append(list, once...)
	for _, form := range once { // JSON within JSON
		list = append(list, jsonForms(form)...)
	}
	list = append(list, unquoted(strconv.Quote(secret)), unquoted(strconv.QuoteToASCII(secret)))
	list = append(list, urlForms(secret)...)
	return append(list, base64Forms(secret)...)
}

func unquoted(s string) string { return s[1 : len(s)-1] }

func jsonForms(s string) []string {
	var plain strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // never fails for a string
	escaped, _ := json.Marshal(s)
	return []string{unquoted(strings.TrimSpace(plain.String())), unquoted(string(escaped))}
}

var percent = regexp.MustCompile(`%[0-9A-F]{2}`)

func urlForms(s string) []string {
	userinfo := strings.TrimPrefix(url.UserPassword("", s).String(), ":")
	list := []string{url.QueryEscape(s), url.PathEscape(s), userinfo}
	for _, form := range list {
		list = append(list, percent.ReplaceAllStringFunc(form, strings.ToLower))
	}
	return list
}

// base64Forms returns texts such that the base64 encoding of any text containing s contains one of them: one for
// each offset of s in a group of three bytes, without the characters that depend on adjacent text.
func base64Forms(s string) []string {
	const least = 8 // shorter texts match by chance
	var list []string
	for shift := range 3 {
		padded := strings.Repeat("\x00", shift) + s
		first := (shift*8 + 5) / 6
		last := len(padded) * 8 / 6
		if last-first < least {
			continue
		}
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			list = append(list, encoding.EncodeToString([]byte(padded))[first:last])
		}
	}
	return list
}
