package httpapi

import (
	"crypto/sha256"
	"sync"
	"time"
)

// limits are a bucket for each who asks: a second's worth may come at once, and
// is filled again evenly.
type limits struct {
	rate float64 // a second

	mu      sync.Mutex
	buckets map[string]bucket
	met     map[[sha256.Size]byte]time.Time // when secrets were last found to be somebody's
}

type bucket struct {
	left float64
	at   time.Time
}

// mostBuckets bounds what is kept; full ones are forgotten then.
const mostBuckets = 10_000

func newLimits(rate int) *limits {
	return &limits{rate: float64(rate), buckets: map[string]bucket{}, met: map[[sha256.Size]byte]time.Time{}}
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

// metFor is for how long a secret that was found is looked up whatever else comes from
// its address: those behind one proxy have one address.
const metFor = 10 * time.Minute

// meet notes that a secret was found.
func (l *limits) meet(secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.met) >= mostBuckets {
		clear(l.met)
	}
	l.met[sha256.Sum256([]byte(secret))] = time.Now()
}

// forget notes that a secret is nobody's any more.
func (l *limits) forget(secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.met, sha256.Sum256([]byte(secret)))
}

// guesses says that who sends this secret may be guessing, and has guessed too often.
func (l *limits) guesses(who, secret string) bool {
	l.mu.Lock()
	at, met := l.met[sha256.Sum256([]byte(secret))]
	l.mu.Unlock()
	return (!met || time.Since(at) >= metFor) && l.spent(who)
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
