package redact

// A Stream masks a text that comes in pieces, however it is cut: the pieces
// that come out, joined, are what String makes of the pieces that went in,
// joined. Text that may turn out to be the beginning of a secret is held back
// until it is decided: at most the length of the longest form of a secret, or
// about a kilobyte where a URL has a password. A Stream is for one goroutine.
type Stream struct {
	masker *Masker
	scan   scanner
	held   []byte
	secret []bool // of each held byte
	base   int    // position of the first held byte
	inside bool   // the byte before it was secret

	from, to int // the newest stretch that is wholly marked
}

// Stream begins a text.
func (m *Masker) Stream() *Stream { return &Stream{masker: m, scan: m.scanner()} }

// Write takes the next piece and gives what is decided; it may be empty.
func (s *Stream) Write(piece string) string {
	hold := s.scan.pos
	for i := range len(piece) {
		s.held = append(s.held, piece[i])
		s.secret = append(s.secret, false)
		found := s.scan.step(piece[i])
		if found.from != none {
			s.mark(found.from, found.to)
		}
		hold = found.hold
	}
	if piece == "" {
		return ""
	}
	hold = max(hold, s.base)
	for hold < s.scan.pos && s.secret[hold-s.base] { // what is secret stays so
		hold++
	}
	return s.emit(hold)
}

// Flush gives the rest and ends the text; the Stream is then ready for another.
func (s *Stream) Flush() string {
	rest := s.emit(s.scan.pos)
	*s = *s.masker.Stream()
	return rest
}

// mark makes the stretch secret. What is known to be so already is not gone
// through again: a long key grows by one byte at a time.
func (s *Stream) mark(from, to int) {
	unmarked := from
	switch {
	case from >= s.from && from <= s.to:
		unmarked = s.to
	default:
		s.from = from
	}
	s.to = max(to, s.to)
	for i := max(unmarked, s.base); i < to; i++ {
		s.secret[i-s.base] = true
	}
}

// emit gives the held text before the position.
func (s *Stream) emit(end int) string {
	n := end - s.base
	out := make([]byte, 0, n)
	for i, b := range s.held[:n] {
		switch {
		case !s.secret[i]:
			out = append(out, b)
		case !s.inside:
			out = append(out, Placeholder...)
		}
		s.inside = s.secret[i]
	}
	s.held = append(s.held[:0], s.held[n:]...)
	s.secret = append(s.secret[:0], s.secret[n:]...)
	s.base = end
	return string(out)
}
