package toolrun

import (
	"sync"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/outputs"
)

// Bounds of the progress reports of one call.
const (
	maxNotes     = 200
	maxNoteChars = 300
)

// Progress buffers progress reports of calls until they are written. It is safe for concurrent
// use. A newer report replaces an older one of the same call that is not written yet.
type Progress struct {
	bell chan struct{}

	mu     sync.Mutex
	kept   []Note // never replaced
	order  []turnkeeper.CallKey
	latest map[turnkeeper.CallKey]Note
	count  map[turnkeeper.CallKey]int // notes of a call
}

// A Note is one progress report of a call.
type Note struct {
	Call turnkeeper.CallKey
	Data turnevents.NoticeData
}

// NewProgress returns an empty Progress.
func NewProgress() *Progress {
	return &Progress{bell: make(chan struct{}, 1), latest: map[turnkeeper.CallKey]Note{},
		count: map[turnkeeper.CallKey]int{}}
}

// Bell returns a channel that receives a value when a report is waiting.
func (p *Progress) Bell() <-chan struct{} { return p.bell }

// Of returns the function by which a call reports its progress. It is safe for concurrent
// use.
func (p *Progress) Of(key turnkeeper.CallKey, name string) func(string) {
	return func(text string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.count[key] >= maxNotes {
			return
		}
		if _, waiting := p.latest[key]; !waiting {
			p.count[key]++
			p.order = append(p.order, key)
		}
		p.latest[key] = noteOf(key, name, text)
		p.ring()
	}
}

// Keep adds a report that later ones do not replace.
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
	return Note{key, turnevents.NoticeData{Text: name + ": " + text, Call: key.String()}}
}

// Take returns the notes since the last Take.
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
