package jobs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// outageEvery is the minimum time between two log lines that say that River cannot reach the database.
const outageEvery = time.Minute

// An outageLog passes on River's log, but reduces its errors of an unavailable database to one line a
// minute: River's services together retry several times a second.
type outageLog struct {
	slog.Handler
	told *outage
}

type outage struct {
	mu     sync.Mutex
	last   time.Time
	hidden int
}

// Handle logs a record, or counts it if it is due to an outage.
func (l outageLog) Handle(ctx context.Context, r slog.Record) error {
	reason, away := awayReason(r)
	if !away {
		return l.Handler.Handle(ctx, r)
	}
	l.told.mu.Lock()
	defer l.told.mu.Unlock()
	if !l.told.last.IsZero() && r.Time.Sub(l.told.last) < outageEvery {
		l.told.hidden++
		return nil
	}
	line := slog.NewRecord(r.Time, slog.LevelWarn, "River cannot reach the database; it tries again", r.PC)
	line.AddAttrs(slog.String("err", reason), slog.String("in", r.Message), slog.Int("lines_left_out", l.told.hidden))
	l.told.last, l.told.hidden = r.Time, 0
	return l.Handler.Handle(ctx, line)
}

// WithAttrs returns a log whose records have the attributes.
func (l outageLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outageLog{l.Handler.WithAttrs(attrs), l.told}
}

// WithGroup returns a log whose attributes are in the group.
func (l outageLog) WithGroup(name string) slog.Handler {
	return outageLog{l.Handler.WithGroup(name), l.told}
}

// signsOfOutage are substrings of the errors of an unavailable database, which River logs as text.
var signsOfOutage = []string{
	"failed to connect", "connection refused", "connection reset", "broken pipe", "unexpected EOF", "conn closed", "closed pool",
	"deadline exceeded", "i/o timeout", "no route to host", "no such host", "SQLSTATE 57P", "SQLSTATE 25006", "SQLSTATE 08",
	"SQLSTATE 53300", "use of closed network connection", "did not answer within",
}

// awayReason returns the error of a record, and whether it means that the database is unavailable.
func awayReason(r slog.Record) (reason string, away bool) {
	if r.Level < slog.LevelWarn {
		return "", false
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "err" && a.Key != "error" {
			return true
		}
		reason = a.Value.String()
		for _, sign := range signsOfOutage {
			away = away || strings.Contains(reason, sign)
		}
		return !away
	})
	return reason, away
}
