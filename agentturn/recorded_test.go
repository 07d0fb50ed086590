package agentturn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/turnlog"
)

// A recording is what a turn does, in order: what it writes, logs and tells its observer and its budget, which models
// it asks, and which points it passes. What requests say is tested in package prompt.
type recording struct {
	b      *bench
	began  time.Time
	budget agentturn.Budget // nil: it gives everything

	mu    sync.Mutex
	lines []string
	names map[string]string // of ids that differ with each run
}

// record lets the bench record what its turns do.
func (b *bench) record() *recording {
	r := &recording{b: b, began: time.Now(), budget: b.budget, names: map[string]string{}}
	b.before = func(e turnlog.Entry) error {
		r.add("writes %s", r.show(e))
		return nil
	}
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{LevelKey: "level", MessageKey: "says",
		EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.StringDurationEncoder,
		EncodeTime: zapcore.ISO8601TimeEncoder})
	set := b.config
	b.config = func(c *agentturn.Config) {
		if set != nil {
			set(c)
		}
		c.Log = zap.New(zapcore.NewCore(encoder, r, zap.InfoLevel))
		c.Retry.Jitter = func() float64 { return 0.5 }
		c.Observer, c.Budget, c.Fault = r, r, &recordedPoints{r, c.Fault}
	}
	return r
}

func (r *recording) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%10.3fs ", time.Since(r.began).Seconds())+fmt.Sprintf(format, args...))
}

// Write takes a line of the log.
func (r *recording) Write(line []byte) (int, error) {
	r.add("logs %s", traceID.ReplaceAllString(strings.TrimSpace(string(line)), ""))
	return len(line), nil
}

// traceID is the same in all lines of a log.
var traceID = regexp.MustCompile(`,"trace_id":"[0-9a-f]*"`)

func (r *recording) Sync() error { return nil }

// recordedPoints are the points of a recording.
type recordedPoints struct {
	r    *recording
	then fault.Hook
}

func (p *recordedPoints) At(ctx context.Context, label string) {
	p.r.add("at %s", label)
	fault.At(ctx, p.then, label)
}

// show returns a value without times, requests and what differs with each run.
func (r *recording) show(v any) string {
	return golden.Brief(reflect.ValueOf(v), func(of string, v reflect.Value) (string, bool) {
		switch value := v.Interface().(type) {
		case time.Time:
			return "", true
		case error:
			return value.Error(), true
		case fmt.Stringer: // durations and keys
			if v.Kind() != reflect.Pointer {
				return value.String(), true
			}
		case json.RawMessage:
			return string(value), true
		case turnkeeper.OutputID:
			r.name(string(value), "output")
		case turnkeeper.Event:
			return string(value.Type), true
		}
		switch of {
		case "Round.Recipe", "Entry.Parts", "FailedAttempt.EndedAt", "ToolCall.Nonce":
			return "", true
		case "CallStart.Nonce", "CallResult.Nonce":
			r.name(v.String(), "nonce")
		}
		if v.Kind() == reflect.String {
			return brief(v.String()), true
		}
		return "", false
	})
}

// name notes an id that differs with each run.
func (r *recording) name(id, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names[id] == "" {
		r.names[id] = fmt.Sprint(kind, " ", len(r.names)+1)
	}
}

// String returns the lines, with names for ids. Tools that begin at the same time are in order.
func (r *recording) String() string {
	const time = len("     0.000s ")
	for i := range r.lines {
		for j := i; j > 0 && strings.HasPrefix(r.lines[j][time:], "runs ") &&
			r.lines[j-1][:time] == r.lines[j][:time] &&
			strings.HasPrefix(r.lines[j-1][time:], "runs ") && r.lines[j] < r.lines[j-1]; j-- {
			r.lines[j], r.lines[j-1] = r.lines[j-1], r.lines[j]
		}
	}
	text := strings.Join(r.lines, "\n") + "\n"
	for _, id := range slices.Sorted(maps.Keys(r.names)) {
		text = strings.ReplaceAll(text, id, r.names[id])
	}
	return text
}

func (r *recording) Dispatch(ctx context.Context, d agentturn.DispatchBegin) (context.Context,
	func(agentturn.DispatchEnd)) {
	r.add("dispatch %d of turn %d", d.Record.Turn.Dispatches, d.Record.Turn.ID)
	return ctx, func(e agentturn.DispatchEnd) {
		r.add("dispatch ends after %d rounds, %s after the first answer, error %v", len(e.Rounds), e.Continued, e.Err)
	}
}

func (r *recording) Round(ctx context.Context, b agentturn.RoundBegin) (context.Context, func(agentturn.RoundEnd)) {
	r.add("round %s", r.show(b))
	return ctx, func(e agentturn.RoundEnd) {
		states := "no answer"
		if e.Round != nil {
			states = fmt.Sprintf("answer %d:", e.Round.Number)
			for _, c := range e.Round.Calls {
				states += fmt.Sprintf(" %s %s", c.Name, c.State)
			}
		}
		r.add("round %d ends with %s", b.Number, states)
	}
}

func (r *recording) ModelCall(ctx context.Context, m agentturn.ModelBegin) (context.Context,
	func(agentturn.ModelEnd)) {
	what := fmt.Sprintf("the %s of %s, attempt %d, of %s/%s", m.Purpose, m.Agent, m.Attempt, m.Provider, m.Model)
	r.add("asks for %s, at most %d tokens, tool choice %q", what, m.Request.MaxOutputTokens, m.Request.ToolChoice)
	return ctx, func(e agentturn.ModelEnd) {
		r.add("%s is answered %q, %d calls, usage %s, error %v", what, brief(e.Response.Text), len(e.Response.Calls),
			r.show(e.Response.Usage), e.Err)
	}
}

var anyHash = regexp.MustCompile(`[0-9a-f]{64}`)

// brief returns the beginning of a text, in one line.
func brief(text string) string {
	const most = 100
	text = anyHash.ReplaceAllStringFunc(strings.ReplaceAll(text, "\n", `\n`), func(hash string) string {
		return hash[:8] + "..."
	})
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + fmt.Sprintf("... %d characters", len(runes))
	}
	return text
}

func (r *recording) ToolCall(ctx context.Context, b agentturn.ToolBegin) (context.Context, func(agentturn.ToolEnd)) {
	what := fmt.Sprintf("%s %s of %s", b.Call.Key, b.Call.Name, b.Agent)
	r.add("runs %s with %s, state %s, detached %t, turn %d, trace %q", what, b.Call.AsRun(), b.Call.State, b.Detached,
		b.Turn.ID, b.TraceParent)
	return ctx, func(e agentturn.ToolEnd) { r.add("%s ended %s %q with %q", what, e.State, e.Error, brief(e.Result)) }
}

func (r *recording) SubAgent(_ context.Context, e agentturn.SubAgentEnd) {
	r.add("sub-agent %s of %s ended %s %q, turn %d below turn %d, trace %q, took %s", e.Agent, e.Call.Key, e.State,
		e.Error, e.Child, e.Turn.ID, e.TraceParent, e.Duration)
}

func (r *recording) Traced(context.Context) bool { return false }

func (r *recording) Reserve(ctx context.Context, who agentturn.Spender,
	estimate turnkeeper.Usage) (agentturn.Reservation, error) {
	given := agentturn.Reservation{ID: 5}
	var err error
	if r.budget != nil {
		given, err = r.budget.Reserve(ctx, who, estimate)
	}
	r.add("reserves for %s at most %d tokens: %s, error %v", r.show(who), estimate.OutputTokens, r.show(given), err)
	return given, err
}

func (r *recording) Settle(ctx context.Context, given agentturn.Reservation, used turnkeeper.Usage) error {
	r.add("settles %d with %s", given.ID, r.show(used))
	if r.budget != nil {
		return r.budget.Settle(ctx, given, used)
	}
	return nil
}

// TestTurnsAreRecorded shows all that turns do, in testdata/turns.txt.
func TestTurnsAreRecorded(t *testing.T) {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(recordedTurns)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := recordedTurns[name]
				b := c.begin(t)
				r := b.record()
				if c.play(b); slices.Contains(atOnce, name) {
					slices.Sort(r.lines)
				}
				fmt.Fprintf(&all, "%s:\n%s\n", name, r)
			})
		})
	}
	golden.File(t, "testdata/turns.txt", all.String())
}
