package httpapi

import (
	"crypto/sha256"
	"sync"
	"time"
)

// limits limits the rate of requests with a token bucket for each sender, with a burst of one second.
type limits struct {
	rate float64 // requests per second

	mu        sync.Mutex
	buckets   map[string]bucket
	confirmed map[[sha256.Size]byte]time.Time // time when a secret was last found in the database, by its hash
}

type bucket struct {
	left float64
	at   time.Time
}

// maxBuckets is the number of buckets from which on full ones are evicted.
const maxBuckets = 10_000

func newLimits(rate int) *limits {
	return &limits{rate: float64(rate), buckets: map[string]bucket{}, confirmed: map[[sha256.Size]byte]time.Time{}}
}

// take counts one request of a sender, or returns how long the sender must wait.
func (l *limits) take(who string) time.Duration {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[who]
	if !known {
		l.evict(now)
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

// exhausted reports whether a sender has reached its limit, and counts no request.
func (l *limits) exhausted(who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[who]
	return known && b.left+l.rate*time.Since(b.at).Seconds() < 1
}

// confirmedFor is how long a valid secret is exempt from the limit of unknown secrets per address: all
// clients behind a proxy share one address.
const confirmedFor = 10 * time.Minute

// confirm records that a secret is valid.
func (l *limits) confirm(secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.confirmed) >= maxBuckets {
		clear(l.confirmed)
	}
	l.confirmed[sha256.Sum256([]byte(secret))] = time.Now()
}

// forget removes a secret that is no longer valid.
func (l *limits) forget(secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.confirmed, sha256.Sum256([]byte(secret)))
}

// blocks reports whether a secret must not be looked up, because its sender has sent too many unknown
// secrets and may be guessing.
func (l *limits) blocks(who, secret string) bool {
	l.mu.Lock()
	at, confirmed := l.confirmed[sha256.Sum256([]byte(secret))]
	l.mu.Unlock()
	return (!confirmed || time.Since(at) >= confirmedFor) && l.exhausted(who)
}

// evict removes full buckets if there are too many buckets.
func (l *limits) evict(now time.Time) {
	if len(l.buckets) < maxBuckets {
		return
	}
	for who, b := range l.buckets {
		if now.Sub(b.at) > time.Second {
			delete(l.buckets, who)
		}
	}
}
