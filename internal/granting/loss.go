package granting

import "time"

// A Loss is what decides whether the loss of a grant counts against its message. All times are by the database's clock.
type Loss struct {
	GrantedAt, Until time.Time // the grant's lease
	LostAt           time.Time // when the grant was taken away; Now for one that is still held
	BeatAt           time.Time // the newest heartbeat of its worker; zero: no worker, or an unknown one
	StoppedAt        time.Time // when its worker reported its stop; zero: it did not
	SilenceFrom      time.Time // when silence began to count for all workers; zero: always
	Present          bool      // the worker's process is connected
	Now              time.Time
}

// Counts reports whether the loss counts. It does if the lease expired or the worker has stopped. Otherwise the worker
// was silent: that counts if no heartbeat has come since, and the worker's process has died or has been silent for a
// whole lease.
func (l Loss) Counts() bool {
	switch {
	case !l.Until.After(l.LostAt), !l.StoppedAt.IsZero():
		return true
	case l.BeatAt.After(l.LostAt) && !YetToCome(l.BeatAt, l.Now):
		return false
	case !l.Present:
		return true
	}
	silent := SilentFrom(l.BeatAt, l.SilenceFrom)
	return !silent.IsZero() && !silent.Add(l.Until.Sub(l.GrantedAt)).After(l.Now)
}

// YetToCome reports whether the time of a past event is more than 10 s in the future, because the clock was set back
// after it. It is the function yet_to_come of the schema.
func YetToCome(happened, now time.Time) bool { return happened.After(now.Add(10 * time.Second)) }

// SilentFrom returns since when a worker has been silent: since its newest heartbeat, or since the database was
// available again after that. It is the function silent_from of the schema.
func SilentFrom(beat, silenceFrom time.Time) time.Time {
	if silenceFrom.After(beat) {
		return silenceFrom
	}
	return beat
}
