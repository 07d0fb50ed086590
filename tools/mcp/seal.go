package mcp

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"time"
)

// KeyBytes is the length of the key that logins are sealed with.
const KeyBytes = 32

// A login is what a person's login to a server gave. It is kept sealed only.
type login struct {
	URL      string    `json:"url"`      // of the server that it was made for, and is sent to
	Resource string    `json:"resource"` // that the tokens are for
	Endpoint string    `json:"endpoint"` // for tokens
	Metadata string    `json:"metadata,omitempty"`
	ClientID string    `json:"client_id"`
	Secret   string    `json:"client_secret,omitempty"`
	Style    int       `json:"style"` // by which the secret is sent
	Access   string    `json:"access_token"`
	Refresh  string    `json:"refresh_token,omitempty"`
	Given    time.Time `json:"given"`
	Expiry   time.Time `json:"expiry"` // of the access token; zero: not told
}

// sealedFor is what a sealed login is bound to: a row that is moved to another
// server's does not open.
func sealedFor(server string) []byte { return []byte("turnkeeper mcp login 1\x00" + server) }

// seal encrypts a login with AES-256 in GCM, with a random nonce before it.
func (l login) seal(key []byte, server string) ([]byte, error) {
	box, err := boxOf(key)
	if err != nil {
		return nil, err
	}
	plain, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return box.Seal(nil, nil, plain, sealedFor(server)), nil
}

// errSealed is why a login cannot be read. It does not tell more, for there is no
// more to tell: a wrong key and a changed text look the same.
var errSealed = errors.New("it was sealed with another key (mcp_login_key), or was changed")

func unseal(key []byte, server string, sealed []byte) (l login, err error) {
	box, err := boxOf(key)
	if err != nil {
		return l, err
	}
	plain, err := box.Open(nil, nil, sealed, sealedFor(server))
	if err != nil || json.Unmarshal(plain, &l) != nil {
		return login{}, errSealed
	}
	return l, nil
}

func boxOf(key []byte) (cipher.AEAD, error) {
	if len(key) != KeyBytes {
		return nil, errors.New("there is no key for logins: set mcp_login_key")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
