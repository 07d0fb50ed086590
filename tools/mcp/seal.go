package mcp

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"time"
)

// KeyBytes is the length of the key that encrypts logins.
const KeyBytes = 32

// A login is the result of a person's login to a server. It is stored only
// encrypted.
type login struct {
	URL      string    `json:"url"`      // of the MCP server that the login is for; tokens are sent only there
	Resource string    `json:"resource"` // resource that the tokens are for
	Endpoint string    `json:"endpoint"` // token endpoint
	Metadata string    `json:"metadata,omitempty"`
	ClientID string    `json:"client_id"`
	Secret   string    `json:"client_secret,omitempty"`
	Style    int       `json:"style"` // oauth2.AuthStyle of the secret
	Access   string    `json:"access_token"`
	Refresh  string    `json:"refresh_token,omitempty"`
	Given    time.Time `json:"given"`
	Expiry   time.Time `json:"expiry"` // of the access token; zero: not stated
}

// sealedFor returns the additional data that binds a sealed login to its
// server: in another server's row it cannot be decrypted.
func sealedFor(server string) []byte { return []byte("turnkeeper mcp login 1\x00" + server) }

// seal encrypts a login with AES-256-GCM. A random nonce precedes the
// ciphertext.
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

// errSealed is the error for a login that cannot be decrypted. A wrong key and
// a changed text cannot be told apart.
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
