package agentturn

import (
	"context"
	"errors"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
)

// Bounds of what calls may tell of their progress.
const (
	noteEvery    = 500 * time.Millisecond // between two writes of it while a turn waits for a call
	maxNotes     = 200                    // of one call
	maxNoteChars = 300
)

// progressNotes are what calls tell of their progress, until it is written. They
// are told by any goroutine; what comes faster than it is written takes the place
// of what came before.
type progressNotes struct {
	bell chan struct{}

	mu     sync.Mutex
	kept   []keptNote
	order  []turnkeeper.CallKey
	latest map[turnkeeper.CallKey]transcript.NoticeData
	told   map[turnkeeper.CallKey]int
}

// A keptNote is one that no later one takes the place of.
type keptNote struct {
	key  turnkeeper.CallKey
	data transcript.NoticeData
}

func newProgressNotes() *progressNotes {
	return &progressNotes{
		bell: make(chan struct{}, 1), latest: map[turnkeeper.CallKey]transcript.NoticeData{}, told: map[turnkeeper.CallKey]int{},
	}
}

// of is how a call tells of its progress.
func (n *progressNotes) of(key turnkeeper.CallKey, name string) func(string) {
	return func(text string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.told[key] >= maxNotes {
			return
		}
		if _, waits := n.latest[key]; !waits {
			n.told[key]++
			n.order = append(n.order, key)
		}
		n.latest[key] = noteOf(key, name, text)
		n.ring()
	}
}

// keep tells of what nothing may take the place of.
func (n *progressNotes) keep(key turnkeeper.CallKey, name, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told[key] >= maxNotes {
		return
	}
	n.told[key]++
	n.kept = append(n.kept, keptNote{key, noteOf(key, name, text)})
	n.ring()
}

func (n *progressNotes) ring() {
	select {
	case n.bell <- struct{}{}:
	default:
	}
}

func noteOf(key turnkeeper.CallKey, name, text string) transcript.NoticeData {
	text = outputs.Clean(text)
	if runes := []rune(text); len(runes) > maxNoteChars {
		text = string(runes[:maxNoteChars]) + "…"
	}
	return transcript.NoticeData{Text: name + ": " + text, Call: key.String()}
}

// tellProgress makes events of what calls told, with the next write.
func (t *turn) tellProgress() {
	n := t.progress
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, note := range n.kept {
		if !t.call(note.key).State.Answered() {
			t.events.Event(turnkeeper.EventNotice, note.key.Round, 0, note.data)
		}
	}
	n.kept = nil
	for _, key := range n.order {
		if !t.call(key).State.Answered() {
			t.events.Event(turnkeeper.EventNotice, key.Round, 0, n.latest[key])
		}
		delete(n.latest, key)
	}
	n.order = nil
}

// until waits for done, and writes meanwhile what calls tell of their progress. A
// write that fails is made again with the next, which says why it failed; one that
// fails the fence ends with kill what is waited for, for nobody waits for it any more,
// and is the error.
func (t *turn) until(ctx context.Context, done <-chan struct{}, kill func(cause error)) error {
	var pause <-chan time.Time
	var bell <-chan struct{} = t.progress.bell
	for {
		select {
		case <-done:
			return nil
		case <-bell:
			switch err := t.commit(ctx); {
			case err == nil:
				bell, pause = nil, time.After(noteEvery)
			case errors.Is(err, turnkeeper.ErrFenced):
				kill(turnkeeper.ErrFenced)
				<-done
				return err
			default:
				<-done
				return nil // the next write says it
			}
		case <-pause:
			bell, pause = t.progress.bell, nil
		}
	}
}
