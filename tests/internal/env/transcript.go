package env

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// A Transcript is what a process wrote. It can be waited on.
type Transcript struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed and replaced at each write
}

// NewTranscript returns an empty transcript.
func NewTranscript() *Transcript { return &Transcript{more: make(chan struct{})} }

func (s *Transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(b)
}

func (s *Transcript) String() string {
	text, _ := s.read()
	return text
}

func (s *Transcript) read() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.more
}

// Tail returns the end of what was written, for error messages.
func (s *Transcript) Tail() string {
	text := s.String()
	if len(text) > 8000 {
		return "..." + text[len(text)-8000:]
	}
	return text
}

var errEnded = errors.New("it has ended")

// Await returns nil when text has been written. It fails when ctx ends, or when ended is closed and
// text is not among what was written before.
func (s *Transcript) Await(ctx context.Context, text string, ended <-chan struct{}) error {
	for over := false; ; {
		said, more := s.read()
		if strings.Contains(said, text) {
			return nil
		}
		if over {
			return errEnded
		}
		select {
		case <-more:
		case <-ended:
			over = true // what it wrote last may have come meanwhile
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
