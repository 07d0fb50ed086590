package redact

// scanner reads text byte by byte. It is a small value that allocates nothing.
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

// none is the position of what is not there.
const none = int(^uint(0) >> 1)

// A finding is what a byte shows: the stretch from..to is secret (none when
// from is none), and the text from hold on is not decided yet.
type finding struct{ from, to, hold int }

// mask adds a secret stretch. All stretches of one byte end with it, or touch
// the one that does.
func (f *finding) mask(from, to int) { f.from, f.to = min(f.from, from), max(f.to, to) }

// keep leaves the text from there on undecided.
func (f *finding) keep(from int) { f.hold = min(f.hold, from) }

// step takes the next byte. When everything is decided, hold is the position
// of the byte after it.
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
