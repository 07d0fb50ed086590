package redact

// scanner searches text byte by byte. It is a small value and does not allocate.
type scanner struct {
	automaton *automaton
	state     int32
	pos       int // of the next byte

	token  tokens
	header headers
	bearer bearers
	user   passwords
}

func newScanner(a *automaton) scanner { return scanner{automaton: a} }

// none is the position of something not found.
const none = int(^uint(0) >> 1)

// A finding is the result of a byte: the text from..to is secret (from is none: no secret), and the text
// from hold on is undecided.
type finding struct{ from, to, hold int }

// mask adds a secret range. All ranges of one byte end with it, or touch one that does.
func (f *finding) mask(from, to int) { f.from, f.to = min(f.from, from), max(f.to, to) }

// keep marks the text from there on as undecided.
func (f *finding) keep(from int) { f.hold = min(f.hold, from) }

// step processes the next byte. If everything is decided, hold is the position after it.
func (s *scanner) step(b byte) finding {
	pos := s.pos
	s.pos++
	s.state = s.automaton.step(s.state, b)
	at := &s.automaton.nodes[s.state]
	found := finding{from: none, hold: s.pos - int(at.depth)}
	if at.longest > 0 {
		found.mask(s.pos-int(at.longest), s.pos)
	}
	s.token.step(pos, b, &found)
	s.header.step(pos, b, &found)
	s.bearer.step(pos, b, &found)
	s.user.step(pos, b, &found)
	return found
}
