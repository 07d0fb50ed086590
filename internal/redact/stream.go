package redact

// A Stream masks a text that arrives in pieces: the joined output equals String of the joined input. It
// holds back text that may be the start of a secret: at most the length of the longest form of a secret,
// or about a kilobyte for a URL with a password. It is not safe for concurrent use.
type Stream struct {
	masker *Masker
	scan   scanner
	held   []byte
	secret []bool // of each held byte
	base   int    // position of the first held byte
	inside bool   // the byte before it was secret

	from, to int // newest range that is marked completely
}

// Stream returns a Stream for a new text.
func (m *Masker) Stream() *Stream { return &Stream{masker: m, scan: m.scanner()} }

// Write processes the next piece and returns the decided text, which may be empty.
func (s *Stream) Write(piece string) string {
	if piece == "" {
		return ""
	}
	hold := max(s.feed(piece), s.base)
	for hold < s.scan.pos && s.secret[hold-s.base] { // secret bytes stay secret
		hold++
	}
	return s.emit(hold)
}

// feed holds the next piece and marks the secrets that end in it. It returns the position from which on the text is
// undecided.
func (s *Stream) feed(piece string) (hold int) {
	for i := range len(piece) {
		s.held = append(s.held, piece[i])
		s.secret = append(s.secret, false)
		found := s.scan.step(piece[i])
		if found.from != none {
			s.mark(found.from, found.to)
		}
		hold = found.hold
	}
	return hold
}

// Flush returns the rest and ends the text. The Stream can be used for another text.
func (s *Stream) Flush() string {
	rest := s.emit(s.scan.pos)
	*s = *s.masker.Stream()
	return rest
}

// mark marks a range as secret. It skips bytes marked before, because a long key grows by one byte at a
// time.
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

// emit returns the held text before the position.
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
