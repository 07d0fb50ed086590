package redact

import "strings"

// The finders below find text that looks like a secret. Each processes a text byte by byte, decides within
// a bounded range, and starts as its zero value.

// keyPrefixes are prefixes of API keys of well-known services.
var keyPrefixes = []string{"sk-", "sk_", "gsk_", "hf_", "xai-", "ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-",
	"xoxb-", "xoxp-", "AIza"}

const (
	keyPrefixMax = 11 // length of the longest prefix
	keyRest      = 16 // minimum number of characters after the prefix
)

func isWord(b byte) bool { return wordBytes[b] }

var wordBytes = func() (table [256]bool) {
	for i := range table {
		table[i] = isWordByte(byte(i))
	}
	return table
}()

func isWordByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-'
}

// isCredential reports whether the byte may be part of a header's credential.
func isCredential(b byte) bool { return isWord(b) || strings.IndexByte("._~+/=", b) >= 0 }

func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// tokens finds words such as sk-0123456789abcdef.
type tokens struct {
	start     int
	length    int // of the word so far
	head      [keyPrefixMax]byte
	prefix    int  // length of the word's key prefix; 0: none so far
	hopeless  bool // the word cannot have a key prefix
	backslash bool // the byte before was a backslash: this one belongs to an escape
}

func (t *tokens) step(pos int, b byte, found *finding) {
	if t.hopeless && isWord(b) {
		return
	}
	escaped := t.backslash
	t.backslash = b == '\\' && !escaped
	if !isWord(b) || escaped {
		*t = tokens{backslash: t.backslash}
		return
	}
	if t.length == 0 {
		t.start = pos
	}
	t.look(b)
	t.length++
	switch {
	case t.hopeless:
	case t.prefix > 0 && t.length >= t.prefix+keyRest:
		found.mask(t.start, pos+1)
	default:
		found.keep(t.start)
	}
}

// look compares the start of the word with the prefixes.
func (t *tokens) look(b byte) {
	if t.prefix > 0 || t.hopeless {
		return
	}
	t.head[t.length] = b
	head := t.head[:t.length+1]
	t.hopeless = true
	for _, prefix := range keyPrefixes {
		switch {
		case string(head) == prefix:
			t.prefix, t.hopeless = len(prefix), false
			return
		case len(head) < len(prefix) && string(head) == prefix[:len(head)]:
			t.hopeless = false
		}
	}
}

// headers finds the credential after "Authorization: SCHEME ". It masks only the credential, so it need
// not hold back text before it.
type headers struct {
	name    int // bytes of "authorization" that the text ends with
	phase   headerPhase
	matched int // bytes of the phase so far
	scheme  [schemeMax]byte
}

type headerPhase int

const (
	headerElsewhere headerPhase = iota
	headerColon                 // : = quotes, brackets, spaces
	headerScheme
	headerBlank
	headerValue
)

const (
	authorization = "authorization"
	colonMax      = 8
	schemeMax     = 9
	blankMax      = 4
)

var schemes = []string{"bearer", "basic", "token", "digest", "negotiate", "apikey", "api-key"}

func (h *headers) step(pos int, b byte, found *finding) {
	if h.phase != headerElsewhere {
		h.move(b)
	}
	if h.name = advance(authorization, h.name, lower(b)); h.name == len(authorization) {
		h.name, h.phase, h.matched = 0, headerColon, 0
	}
	if h.phase == headerValue {
		found.mask(pos, pos+1)
	}
}

// move advances from phase to phase; an unexpected byte ends the search.
func (h *headers) move(b byte) {
	switch {
	case h.phase == headerColon && h.matched < colonMax && isColon(b):
		h.matched++
	case h.phase == headerColon && h.matched > 0 && isWord(b):
		h.phase, h.scheme[0], h.matched = headerScheme, lower(b), 1
	case h.phase == headerScheme && h.matched < schemeMax && isWord(b):
		h.scheme[h.matched] = lower(b)
		h.matched++
	case h.phase == headerScheme && isBlank(b) && h.isScheme():
		h.phase, h.matched = headerBlank, 1
	case h.phase == headerBlank && h.matched < blankMax && isBlank(b):
		h.matched++
	case h.phase >= headerBlank && isCredential(b):
		h.phase = headerValue
	default:
		h.phase = headerElsewhere
	}
}

func (h *headers) isScheme() bool {
	for _, scheme := range schemes {
		if string(h.scheme[:h.matched]) == scheme {
			return true
		}
	}
	return false
}

// isColon reports whether the byte may be between a header's name and its value, in the usual ways to
// print headers.
func isColon(b byte) bool { return strings.IndexByte(":=\"'`[]{(\\ \t", b) >= 0 }

// isBlank reports whether the byte is a space, or starts an encoded one in a URL.
func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '+' || b == '%' }

// bearers finds long words after "Bearer ".
type bearers struct {
	matched int // bytes of "bearer "
	start   int
	length  int // of the word after it
}

const (
	bearerWord  = "bearer "
	bearerLeast = 20
)

func (t *bearers) step(pos int, b byte, found *finding) {
	if t.matched == len(bearerWord) && isCredential(b) {
		if t.length == 0 {
			t.start = pos
		}
		t.length++
		if t.length >= bearerLeast {
			found.mask(t.start, pos+1)
		} else {
			found.keep(t.start)
		}
		return
	}
	if t.matched == len(bearerWord) {
		*t = bearers{}
	}
	t.matched = advance(bearerWord, t.matched, lower(b))
}

// passwords finds PASSWORD in ://USER:PASSWORD@.
type passwords struct {
	mark  int // bytes of "://" that the text ends with
	phase passwordPhase
	count int // bytes of the phase so far
	start int // of the password
	at    int // of the last @ in it; 0: none
}

type passwordPhase int

const (
	urlElsewhere passwordPhase = iota
	urlUser
	urlPassword
)

const (
	urlMark     = "://"
	userMax     = 256
	passwordMax = 1024
)

func (p *passwords) step(pos int, b byte, found *finding) {
	if p.phase != urlElsewhere {
		p.find(pos, b, found)
	}
	if p.mark = advance(urlMark, p.mark, b); p.mark == len(urlMark) {
		*p = passwords{phase: urlUser}
	}
}

// find holds back a password until the authority ends: only the last @ ends the password.
func (p *passwords) find(pos int, b byte, found *finding) {
	p.count++
	switch {
	case endsAuthority(b):
		p.phase = urlElsewhere
	case p.phase == urlUser && b == ':':
		p.phase, p.count, p.start, p.at = urlPassword, 0, pos+1, 0
	case p.phase == urlUser && (b == '@' || p.count > userMax):
		p.phase = urlElsewhere
	case p.phase == urlUser:
	case b == '@' && pos > p.start: // it does not count as a byte of the password
		p.at = pos
		found.mask(p.start, pos)
		found.keep(pos)
	case p.count > passwordMax:
		p.phase = urlElsewhere
	default:
		found.keep(max(p.start, p.at))
	}
}

func endsAuthority(b byte) bool { return b <= ' ' || strings.IndexByte("/?#\"'<>`\\", b) >= 0 }

// advance returns how much of word the text ends with after the next byte.
func advance(word string, matched int, b byte) int {
	if matched == 0 && b != word[0] {
		return 0
	}
	for matched > 0 && word[matched] != b {
		matched = border(word[:matched])
	}
	if word[matched] == b {
		matched++
	}
	return matched
}

// border returns the length of the longest proper prefix of s that is also its suffix.
func border(s string) int {
	n := len(s) - 1
	for n > 0 && !strings.HasSuffix(s, s[:n]) {
		n--
	}
	return n
}
