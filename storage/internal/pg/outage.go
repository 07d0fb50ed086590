package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// An Outage is the one place that logs that the database is unavailable: when that begins, every outageLogPause, and
// when it is over. It learns that from the answers to all statements and connection attempts. Every part of a process
// fails meanwhile, and logs that too: QuietLog leaves those lines out. The zero value is not ready: see NewOutage. Its
// methods do nothing for nil.
type Outage struct {
	log *zap.Logger

	under atomic.Bool // began is not zero
	mu    sync.Mutex
	began time.Time // zero: the database is there
	last  time.Time // of the failures
	said  time.Time // when it was last logged
	fails int
}

// NewOutage returns an Outage that logs to log. The stores of a process share it: see Options.
func NewOutage(log *zap.Logger) *Outage { return &Outage{log: log} }

const (
	// outageLogPause is the time between two log lines about the same outage.
	outageLogPause = 10 * time.Second
	// outageEnds is how long nothing may fail before the next answer ends an outage: the answers of old connections
	// come while new ones are refused.
	outageEnds = time.Second
)

// saw notes the outcome of a statement or of a connection attempt. ctx is its caller's.
func (o *Outage) saw(ctx context.Context, err error) {
	switch {
	case o == nil || errors.Is(err, context.Canceled) || err != nil && ctx.Err() != nil:
	case err == nil:
		o.answered()
	default:
		if err := Translate(err); Away(err) {
			o.failed(err)
		} else if SQLState(err) != "" {
			o.answered()
		}
	}
}

func (o *Outage) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.last = now
	o.fails++
	about := []zap.Field{zap.String("cause", Cause(err)), zap.String("error", err.Error())}
	switch {
	case o.began.IsZero():
		o.began, o.said, o.fails = now, now, 1
		o.under.Store(true)
		o.log.Warn("the database is unavailable; retrying", about...)
	case now.Sub(o.said) >= outageLogPause:
		o.said = now
		o.log.Warn("the database is still unavailable; retrying", append(about, o.lasts(now),
			zap.Int("failures", o.fails))...)
	}
}

func (o *Outage) answered() {
	if !o.under.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() || time.Since(o.last) < outageEnds {
		return
	}
	o.log.Info("the database is available again", o.lasts(o.last), zap.Int("failures", o.fails))
	o.began = time.Time{}
	o.under.Store(false)
}

func (o *Outage) lasts(until time.Time) zap.Field {
	return zap.Duration("for", until.Sub(o.began).Round(time.Millisecond))
}

// QuietLog returns a core that logs warnings about a database that is unavailable only at level debug, because an
// Outage says it, and a warning about a refusal that may pass at most every 10 s for each message, SQLSTATE and subject
// (fields that end in "_id"). A line is about the error that it has as a field (zap.Error). Errors, which say what
// becomes of a turn or a worker, are logged in any case, and so are warnings about other servers.
func QuietLog(core zapcore.Core) zapcore.Core {
	return quietLog{core, "", &repeated{last: map[string]time.Time{}}}
}

type quietLog struct {
	zapcore.Core
	about    string // the subject by the fields of With
	repeated *repeated
}

// repeated are the lines about refusals, with the time when each was last logged.
type repeated struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (q quietLog) With(fields []zapcore.Field) zapcore.Core {
	return quietLog{q.Core.With(fields), q.about + subject(fields), q.repeated}
}

// subject returns the fields that say what a line is about.
func subject(fields []zapcore.Field) string {
	ids := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		if strings.HasSuffix(f.Key, "_id") {
			f.AddTo(ids)
		}
	}
	return fmt.Sprint(ids.Fields) // in the order of its keys
}

// Check adds the core to the entry, so that Write sees its fields.
func (q quietLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !q.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, q)
}

// Write writes the entry, or moves it to level debug.
func (q quietLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Level == zapcore.WarnLevel && q.leavesOut(entry.Message, fields) {
		if !q.Enabled(zapcore.DebugLevel) {
			return nil
		}
		entry.Level = zapcore.DebugLevel
	}
	return q.Core.Write(entry, fields)
}

func (q quietLog) leavesOut(message string, fields []zapcore.Field) bool {
	for _, f := range fields {
		err, ok := f.Interface.(error)
		if !ok || f.Type != zapcore.ErrorType || !ofDatabase(err) {
			continue
		}
		if err = Translate(err); Away(err) {
			return true
		}
		if code := SQLState(err); code != "" && Uncertain(err) {
			return q.repeated.soon(message + code + q.about + subject(fields))
		}
	}
	return false
}

// ofDatabase reports whether err comes from the database or from the attempt to reach it, and not from another server.
func ofDatabase(err error) bool {
	_, refused := errors.AsType[*serverError](err)
	_, reported := errors.AsType[*pgconn.PgError](err)
	_, unreached := errors.AsType[*pgconn.ConnectError](err)
	return refused || reported || unreached || isBroken(err)
}

// soon reports whether the line was logged less than refusalLogPause ago, and notes that it is logged if not.
func (r *repeated) soon(line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ string, at time.Time) bool { return time.Since(at) >= refusalLogPause })
	if _, ok := r.last[line]; ok {
		return true
	}
	r.last[line] = time.Now()
	return false
}
