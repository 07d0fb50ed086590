package webhooks

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The wait before the next attempt is 5 s after the first, three times as long after each further one,
// at most 6 h; randomised by 25 % so that attempts that failed together are spread.
const (
	firstWait  = 5 * time.Second
	longest    = 6 * time.Hour
	waitFactor = 3
)

// backoff returns the wait after an attempt, numbered from 1; random is in [0,1).
func backoff(attempt int, random float64) time.Duration {
	wait := firstWait
	for range attempt - 1 {
		if wait *= waitFactor; wait >= longest {
			wait = longest
			break
		}
	}
	return time.Duration(float64(wait) * (0.75 + random/2))
}

// retryAfter returns the wait in an answer's Retry-After header, in seconds or as a date; at most longest. 0: none.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	wait := time.Duration(0)
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		// on overflow ParseInt returns the maximum
		wait = time.Duration(min(max(seconds, 0), int64(longest/time.Second))) * time.Second
	} else if date, err := http.ParseTime(text); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), longest)
}
