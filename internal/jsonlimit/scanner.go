package jsonlimit

import (
	"bytes"
	"errors"
	"fmt"
)

// A Scanner checks a JSON text that comes in pieces. It accepts the texts that encoding/json accepts,
// if they are within the limits. It stops at the first fault. It is not safe for concurrent use.
type Scanner struct {
	limits Limits
	size   Size
	step   step
	open   []container
	name   bool   // the current string is the name of a member
	rest   string // what must follow of a literal or of the digits of an escape
	err    error

	objects int      // number of open objects
	path    []member // the newest names in the two outermost objects
	items   []int    // counts of Limits.Items
}

// A container is an open object or array.
type container struct {
	kind    byte // '{' or '['
	members int
	items   int // index in Limits.Items of the rule about its members or elements; -1: none
}

// A member is the name of a member of an object.
type member struct {
	name    []byte // the first bytes
	escaped bool   // the name has escapes, so it may be any
}

const maxName = 64

func (m *member) is(name string) bool { return m.escaped || bytes.EqualFold(m.name, []byte(name)) }

// NewScanner returns a Scanner at the start of a text.
func NewScanner(limits Limits) *Scanner {
	return &Scanner{limits: limits, step: atValue, path: make([]member, pathLength),
		items: make([]int, len(limits.Items))}
}

// pathLength is the number of names in the path of Items.
const pathLength = 2

// maxOpen is the maximum depth of encoding/json.
const maxOpen = 10000

// Bytes of memory that encoding/json allocates for a value of type any, rounded up.
const (
	slotMemory   = 32  // an element of an array, which grows by doubling
	valueMemory  = 24  // the value of a number, or the header of a string or an array
	objectMemory = 64  // an empty map
	groupMemory  = 320 // the first 8 members of a map
	memberMemory = 96  // each further member, while the map grows
)

// groupMembers is the number of members that the first group of a map has room for.
const groupMembers = 8

// A step is what the scanner expects next.
type step uint8

const (
	atValue    step = iota
	atFirst         // a value or the end of an array
	atFirstKey      // a name or the end of an object
	atKey
	atColon
	afterValue
	inString
	inEscape
	inDigits // of an escape
	inLiteral
	afterMinus
	afterZero
	inInteger
	afterPoint
	inFraction
	afterE
	afterSign
	inExponent
)

// Feed checks the next piece. After an error it returns the same error.
func (s *Scanner) Feed(piece []byte) error {
	for len(piece) > 0 && s.err == nil {
		n := 1
		if s.step == inString {
			n = s.text(piece)
		} else {
			s.next(piece[0])
		}
		s.size.Bytes += int64(n)
		piece = piece[n:]
	}
	if s.err == nil {
		s.err = s.limits.check(s.size)
	}
	return s.err
}

// End returns an error if the text is not complete.
func (s *Scanner) End() error {
	if s.err != nil {
		return s.err
	}
	switch s.step {
	case afterValue, afterZero, inInteger, inFraction, inExponent:
		if len(s.open) == 0 {
			return nil
		}
	}
	s.err = errors.New("unexpected end of the JSON text")
	return s.err
}

// Size returns the size of what was fed.
func (s *Scanner) Size() Size { return s.size }

func (s *Scanner) fail(b byte) { s.failAt(b, s.size.Bytes) }

func (s *Scanner) failAt(b byte, at int64) {
	s.err = fmt.Errorf("invalid character %q at byte %d of the JSON text", b, at)
}

// text takes characters of a string, and returns their number.
func (s *Scanner) text(piece []byte) int {
	n := bytes.IndexFunc(piece[:min(len(piece), maxRun)], isSpecial)
	whole := n < 0
	if whole {
		n = min(len(piece), maxRun)
	}
	s.size.Memory += int64(n)
	if at := s.named(); at != nil {
		at.name = append(at.name, piece[:min(n, maxName-len(at.name))]...)
	}
	if whole {
		return n
	}
	switch piece[n] {
	case '"':
		s.endString()
	case '\\':
		s.step = inEscape
		if at := s.named(); at != nil {
			at.escaped = true
		}
	default:
		s.failAt(piece[n], s.size.Bytes+int64(n))
	}
	return n + 1
}

// named returns the part of the path that the current string is, or nil.
func (s *Scanner) named() *member {
	if !s.name || s.objects > pathLength || len(s.items) == 0 {
		return nil
	}
	return &s.path[s.objects-1]
}

// maxRun bounds the characters of a string that are taken at once.
const maxRun = 64 << 10

func isSpecial(r rune) bool { return r < ' ' || r == '"' || r == '\\' }

func (s *Scanner) endString() {
	if s.name {
		s.step = atColon
		return
	}
	s.step = afterValue
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isHex(b byte) bool { return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'f' }

// next takes a byte that is not in a string.
func (s *Scanner) next(b byte) {
	switch s.step {
	case inEscape, inDigits, inLiteral:
		s.inWord(b)
	case afterMinus, afterZero, inInteger, afterPoint, inFraction, afterE, afterSign, inExponent:
		s.inNumber(b)
	default:
		if !isSpace(b) {
			s.between(b)
		}
	}
}

// between takes a byte that is between two tokens, or begins one.
func (s *Scanner) between(b byte) {
	switch {
	case s.step == atFirst && b == ']', s.step == atFirstKey && b == '}':
		s.close()
	case s.step == atValue, s.step == atFirst:
		s.value(b)
	case (s.step == atFirstKey || s.step == atKey) && b == '"':
		s.string(true)
		s.member()
	case s.step == atColon && b == ':':
		s.step = atValue
	case s.step == afterValue:
		s.after(b)
	default:
		s.fail(b)
	}
}

// after takes the byte after a value.
func (s *Scanner) after(b byte) {
	in := byte(0)
	if at := s.innermost(); at != nil {
		in = at.kind
	}
	switch {
	case in == '{' && b == ',':
		s.step = atKey
	case in == '[' && b == ',':
		s.step = atValue
	case in == '{' && b == '}', in == '[' && b == ']':
		s.close()
	default:
		s.fail(b)
	}
}

// value takes the first byte of a value.
func (s *Scanner) value(b byte) {
	s.size.Memory += slotMemory
	if at := s.innermost(); at != nil && at.kind == '[' {
		s.item(at)
	}
	switch {
	case b == '{':
		s.size.Memory += objectMemory + s.limits.Object
		s.begin(b, atFirstKey)
	case b == '[':
		s.size.Memory += valueMemory
		s.begin(b, atFirst)
	case b == '"':
		s.string(false)
	case b == 't':
		s.literal("rue")
	case b == 'f':
		s.literal("alse")
	case b == 'n':
		s.literal("ull")
	case b == '-':
		s.number(afterMinus)
	case b == '0':
		s.number(afterZero)
	case isDigit(b):
		s.number(inInteger)
	default:
		s.fail(b)
	}
}

// innermost returns the innermost open container, or nil.
func (s *Scanner) innermost() *container {
	if len(s.open) == 0 {
		return nil
	}
	return &s.open[len(s.open)-1]
}

// count counts a value or a name.
func (s *Scanner) count() {
	s.size.Values++
	if s.err == nil {
		s.err = s.limits.check(s.size)
	}
}

func (s *Scanner) begin(b byte, first step) {
	s.open, s.step = append(s.open, container{kind: b, items: s.rule()}), first
	if b == '{' {
		s.objects++
	}
	s.size.Depth = max(s.size.Depth, len(s.open))
	if s.count(); s.err == nil && len(s.open) > maxOpen {
		s.err = &LimitError{"levels of nested JSON objects and arrays", maxOpen}
	}
}

// rule returns the index of the Items that the value of the current path follows; -1: none.
func (s *Scanner) rule() int {
	if at := s.innermost(); s.objects == pathLength && at.kind == '{' {
		for i, items := range s.limits.Items {
			if s.path[0].is(items.In) && s.path[1].is(items.Name) {
				return i
			}
		}
	}
	return -1
}

func (s *Scanner) close() {
	if s.innermost().kind == '{' {
		s.objects--
	}
	s.open, s.step = s.open[:len(s.open)-1], afterValue
}

// member counts a member of the innermost object, whose name begins.
func (s *Scanner) member() {
	at := s.innermost()
	switch at.members++; {
	case at.members == 1:
		s.size.Memory += groupMemory
	case at.members > groupMembers:
		s.size.Memory += memberMemory
	}
	if name := s.named(); name != nil {
		name.name, name.escaped = name.name[:0], false
	}
	s.item(at)
}

// item counts an element of an array or a member of an object by the Items that it follows.
func (s *Scanner) item(of *container) {
	if of.items < 0 {
		return
	}
	rule := s.limits.Items[of.items]
	s.size.Memory += rule.Memory
	if s.items[of.items]++; s.items[of.items] > rule.Max && s.err == nil {
		s.err = &LimitError{rule.What, int64(rule.Max)}
	}
}

func (s *Scanner) string(name bool) {
	s.name, s.step = name, inString
	s.size.Memory += valueMemory
	s.count()
}

func (s *Scanner) literal(rest string) {
	s.step, s.rest = inLiteral, rest
	s.count()
}

func (s *Scanner) number(first step) {
	s.step = first
	s.size.Memory += valueMemory
	s.count()
}

// inWord takes a byte of a literal or of an escape.
func (s *Scanner) inWord(b byte) {
	switch {
	case s.step == inEscape && b == 'u':
		s.step, s.rest = inDigits, "0000"
	case s.step == inEscape && bytes.IndexByte([]byte(`"\/bfnrt`), b) >= 0:
		s.size.Memory++
		s.step = inString
	case s.step == inDigits && isHex(b), s.step == inLiteral && b == s.rest[0]:
		if s.rest = s.rest[1:]; s.rest == "" {
			s.endWord()
		}
	default:
		s.fail(b)
	}
}

func (s *Scanner) endWord() {
	if s.step == inLiteral {
		s.step = afterValue
		return
	}
	s.size.Memory += 3 // bytes of a character in UTF-8
	s.step = inString
}

// inNumber takes a byte of a number, or the one after it.
func (s *Scanner) inNumber(b byte) {
	if to, ok := afterInNumber(s.step, b); ok {
		s.step = to
		return
	}
	switch s.step {
	case afterZero, inInteger, inFraction, inExponent:
		s.step = afterValue
		s.next(b)
	default:
		s.fail(b)
	}
}

// afterInNumber returns the step after a byte that belongs to a number.
func afterInNumber(at step, b byte) (to step, ok bool) {
	switch {
	case isDigit(b):
		return afterDigit(at, b)
	case b == '.' && (at == afterZero || at == inInteger):
		return afterPoint, true
	case b|0x20 == 'e' && (at == afterZero || at == inInteger || at == inFraction):
		return afterE, true
	case (b == '+' || b == '-') && at == afterE:
		return afterSign, true
	}
	return at, false
}

// afterDigit returns the step after a digit that belongs to a number.
func afterDigit(at step, digit byte) (to step, ok bool) {
	switch at {
	case afterMinus:
		if digit == '0' {
			return afterZero, true
		}
		return inInteger, true
	case inInteger:
		return inInteger, true
	case afterPoint, inFraction:
		return inFraction, true
	case afterE, afterSign, inExponent:
		return inExponent, true
	}
	return at, false
}
