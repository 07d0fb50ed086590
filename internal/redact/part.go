package redact

// Margin is the number of bytes that whoever shows a part of a text reads beyond each of its ends, where the text goes
// on: Part recognises only secrets that lie within the text.
const Margin = 4 << 10

// Part returns the text from one byte up to another, with secrets masked, also one of which only a part lies there.
// Masking the part alone would leave that part of it.
func (m *Masker) Part(text string, from, to int) string {
	if !m.finds(text) {
		return text[from:to]
	}
	s := m.Stream()
	s.feed(text)
	s.held, s.secret = s.held[from:to], s.secret[from:to]
	return s.emit(to - from)
}

// Cut returns a text that was cut, with secrets masked. It leaves out an end that may be the beginning of a secret.
func (m *Masker) Cut(text string) string { return m.Stream().Write(text) }
