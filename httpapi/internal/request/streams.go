package request

import (
	"net/http"
	"sync"
)

// Streams bounds how many streams of events each sender has open at once. It is safe for concurrent use.
type Streams struct {
	limit int

	mu   sync.Mutex
	open map[string]int // by sender
}

// NewStreams returns Streams with a limit for each sender.
func NewStreams(limit int) *Streams { return &Streams{limit: limit, open: map[string]int{}} }

func (s *Streams) take(who string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[who] >= s.limit {
		p := Refuse(http.StatusTooManyRequests,
			"too many streams: the limit is %d at once for each token; close some, or try again later", s.limit)
		p.Lasts = true
		return p
	}
	s.open[who]++
	return nil
}

func (s *Streams) give(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[who]--; s.open[who] == 0 {
		delete(s.open, who)
	}
}

// OpenStream counts the response as a stream of its caller, until the end of WithStreams. A handler calls it before it
// streams, and before it does what a refused request must not do. Further calls do nothing.
func (c *Call) OpenStream() error {
	if c.streaming {
		return nil
	}
	if err := c.streams.take(c.Caller.Name()); err != nil {
		c.W.Header().Set("Retry-After", "10")
		return err
	}
	c.streaming = true
	return nil
}

// WithStreams calls do, in which OpenStream counts in s.
func (c *Call) WithStreams(s *Streams, do func() error) error {
	c.streams = s
	defer func() {
		if c.streaming {
			s.give(c.Caller.Name())
		}
	}()
	return do()
}
