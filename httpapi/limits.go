package httpapi

import (
	"sync"
	"time"
)

// limits are a bucket for each who asks: a second's worth may come at once, and
// is filled again evenly.
type limits struct {
	rate float64 // a second

	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// mostBuckets bounds what is kept; full ones are forgotten then.
const mostBuckets = 10_000

func newLimits(rate int) *limits {
	return &limits{rate: float64(rate), buckets: map[string]bucket{}}
}

// take takes one request, or says how long to wait.
func (l *limits) take(who string) time.Duration {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[who]
	if !known {
		l.makeRoom(now)
		b = bucket{l.rate, now}
	}
	b.left, b.at = min(b.left+l.rate*now.Sub(b.at).Seconds(), l.rate), now
	if b.left < 1 {
		l.buckets[who] = b
		return time.Duration((1 - b.left) / l.rate * float64(time.Second))
	}
	b.left--
	l.buckets[who] = b
	return 0
}

// spent says that who has nothing left, and takes nothing.
func (l *limits) spent(who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[who]
	return known && b.left+l.rate*time.Since(b.at).Seconds() < 1
}

func (l *limits) makeRoom(now time.Time) {
	if len(l.buckets) < mostBuckets {
		return
	}
	for who, b := range l.buckets {
		if now.Sub(b.at) > time.Second {
			delete(l.buckets, who)
		}
	}
}
