package toolrun

import (
	"sync"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
)

// Bounds of what one call may tell of its progress.
const (
	maxNotes     = 200
	maxNoteChars = 300
)

// Progress holds what calls tell of their progress, until it is written. Any goroutine may
// tell; what comes faster than it is written takes the place of what came before.
type Progress struct {
	bell chan struct{}

	mu     sync.Mutex
	kept   []Note // that no later one takes the place of
	order  []turnkeeper.CallKey
	latest map[turnkeeper.CallKey]Note
	count  map[turnkeeper.CallKey]int // of the notes of a call
}

// A Note is what a call tells of its progress.
type Note struct {
	Call turnkeeper.CallKey
	Data transcript.NoticeData
}

// NewProgress makes a Progress of which nothing was told.
func NewProgress() *Progress {
	return &Progress{bell: make(chan struct{}, 1), latest: map[turnkeeper.CallKey]Note{}, count: map[turnkeeper.CallKey]int{}}
}

// Bell returns a channel that has a value when something was told.
func (p *Progress) Bell() <-chan struct{} { return p.bell }

// Of returns how a call tells of its progress.
func (p *Progress) Of(key turnkeeper.CallKey, name string) func(string) {
	return func(text string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.count[key] >= maxNotes {
			return
		}
		if _, waits := p.latest[key]; !waits {
			p.count[key]++
			p.order = append(p.order, key)
		}
		p.latest[key] = noteOf(key, name, text)
		p.ring()
	}
}

// Keep tells of what nothing may take the place of.
func (p *Progress) Keep(key turnkeeper.CallKey, name, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count[key] >= maxNotes {
		return
	}
	p.count[key]++
	p.kept = append(p.kept, noteOf(key, name, text))
	p.ring()
}

func (p *Progress) ring() {
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

func noteOf(key turnkeeper.CallKey, name, text string) Note {
	text = outputs.Clean(text)
	if runes := []rune(text); len(runes) > maxNoteChars {
		text = string(runes[:maxNoteChars]) + "…"
	}
	return Note{key, transcript.NoticeData{Text: name + ": " + text, Call: key.String()}}
}

// Take returns what was told since the last Take.
func (p *Progress) Take() (notes []Note) {
	p.mu.Lock()
	defer p.mu.Unlock()
	notes, p.kept = p.kept, nil
	for _, key := range p.order {
		notes = append(notes, p.latest[key])
		delete(p.latest, key)
	}
	p.order = nil
	return notes
}
