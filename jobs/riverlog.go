package jobs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// An outageLog passes on River's log without its errors of an unavailable database: River's services together retry
// several times a second, and a storage.Outage logs it once.
type outageLog struct{ slog.Handler }

// Handle logs a record, or leaves it out.
func (l outageLog) Handle(ctx context.Context, r slog.Record) error {
	if saysAway(r) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs returns a log whose records have the attributes.
func (l outageLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outageLog{l.Handler.WithAttrs(attrs)}
}

// WithGroup returns a log whose attributes are in the group.
func (l outageLog) WithGroup(name string) slog.Handler {
	return outageLog{l.Handler.WithGroup(name)}
}

// signsOfOutage are substrings of the errors of an unavailable database, which River logs as text.
var signsOfOutage = []string{
	"failed to connect", "connection refused", "connection reset", "broken pipe", "unexpected EOF", "conn closed",
	"closed pool",
	"deadline exceeded", "i/o timeout", "no route to host", "no such host", "SQLSTATE 57P", "SQLSTATE 25006",
	"SQLSTATE 08",
	"SQLSTATE 53300", "use of closed network connection", "did not answer within",
}

// saysAway reports whether a record has an error that means that the database is unavailable.
func saysAway(r slog.Record) (away bool) {
	if r.Level < slog.LevelWarn {
		return false
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "err" && a.Key != "error" {
			return true
		}
		reason := a.Value.String()
		away = slices.ContainsFunc(signsOfOutage, func(sign string) bool { return strings.Contains(reason, sign) })
		return !away
	})
	return away
}
