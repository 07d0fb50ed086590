package tools_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper/tools"
)

var errBoom = errors.New("disk on fire")

type badError struct{}

func (badError) Error() string { panic("no words") }

func failed(outcome tools.Outcome, text string) tools.RunResult {
	return tools.RunResult{Result: tools.Result{Text: text, IsError: true}, Outcome: outcome}
}

func TestExecuteEndings(t *testing.T) {
	type behaviour = func(context.Context, tools.Call) (tools.Result, error)
	wait := func(ctx context.Context, _ tools.Call) (tools.Result, error) {
		<-ctx.Done()
		return tools.Result{}, ctx.Err()
	}
	tests := []struct {
		name    string
		run     behaviour
		timeout time.Duration
		limit   time.Duration
		want    tools.RunResult
		took    time.Duration
	}{
		{
			name: "success",
			run:  func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{Text: "ok"}, nil },
			want: tools.RunResult{Result: tools.Result{Text: "ok"}, Outcome: tools.Succeeded},
		},
		{
			name: "a result that says it failed",
			run: func(context.Context, tools.Call) (tools.Result, error) {
				return tools.Result{Text: "404", IsError: true}, nil
			},
			want: failed(tools.Failed, "404"),
		},
		{
			name: "error",
			run:  func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{}, errBoom },
			want: failed(tools.Failed, "tool error: disk on fire"),
		},
		{name: "timeout, whole seconds", run: wait, timeout: 60 * time.Second, want: failed(tools.TimedOut,
			"tool error: 'fake' timed out after 60 s"), took: 60 * time.Second},
		{name: "timeout, part of a second", run: wait, timeout: 2500 * time.Millisecond, want: failed(tools.TimedOut,
			"tool error: 'fake' timed out after 2.5 s"), took: 2500 * time.Millisecond},
		{name: "timeout, odd rest", run: wait, timeout: 1234567 * time.Microsecond, want: failed(tools.TimedOut,
			"tool error: 'fake' timed out after 1.235 s"), took: 1234567 * time.Microsecond},
		{name: "timeout, what is left of a limit", run: wait, timeout: 1987 * time.Millisecond, limit: 2 * time.Second,
			want: failed(tools.TimedOut, "tool error: 'fake' timed out after 2 s"), took: 1987 * time.Millisecond},
		{
			name: "success after the timeout, within the grace",
			run: func(ctx context.Context, _ tools.Call) (tools.Result, error) {
				<-ctx.Done()
				time.Sleep(700 * time.Millisecond)
				return tools.Result{Text: "done all the same"}, nil
			},
			timeout: time.Second,
			want:    tools.RunResult{Result: tools.Result{Text: "done all the same"}, Outcome: tools.Succeeded},
			took:    1700 * time.Millisecond,
		},
		{name: "panic", run: func(context.Context, tools.Call) (tools.Result, error) {
			panic("index 3")
		}, want: failed(tools.Panicked, "tool error: 'fake' panicked: index 3")},
		{name: "panic with an error", run: func(context.Context, tools.Call) (tools.Result, error) {
			panic(errBoom)
		}, want: failed(tools.Panicked, "tool error: 'fake' panicked: disk on fire")},
		{name: "panic with what cannot be printed", run: func(context.Context, tools.Call) (tools.Result, error) {
			panic(badError{})
		}, want: failed(tools.Panicked, "tool error: 'fake' panicked: its message cannot be printed")},
		{name: "error that cannot be printed", run: func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{}, badError{}
		}, want: failed(tools.Panicked, "tool error: 'fake' panicked: no words")},
		{
			name: "goroutine ended",
			run: func(context.Context, tools.Call) (tools.Result, error) {
				runtime.Goexit()
				return tools.Result{}, nil
			},
			want: failed(tools.Panicked, "tool error: 'fake' panicked: it ended its goroutine"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tool := named("fake")
				tool.run = tt.run
				start := time.Now()
				got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{Timeout: tt.timeout,
					Limit: tt.limit})
				if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(tools.RunResult{}, "Err")); diff != "" {
					t.Errorf("ending (-want +got):\n%s", diff)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

func TestExecuteKeepsTheError(t *testing.T) {
	tool := named("fake")
	tool.run = func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{}, errBoom }
	if got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{}); !errors.Is(got.Err, errBoom) {
		t.Errorf("Err = %v", got.Err)
	}
}

func TestExecuteCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		tool := named("fake")
		tool.run = func(ctx context.Context, _ tools.Call) (tools.Result, error) {
			<-ctx.Done()
			return tools.Result{}, context.Cause(ctx)
		}
		time.AfterFunc(3*time.Second, func() { cancel(errors.New("max_duration")) })
		got := tools.Execute(ctx, tool, tools.Call{}, tools.ExecuteOptions{Timeout: time.Minute})
		want := failed(tools.Cancelled, "tool error: 'fake' was cancelled: max_duration")
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(tools.RunResult{}, "Err")); diff != "" {
			t.Errorf("ending (-want +got):\n%s", diff)
		}

		ran := false
		tool.run = func(context.Context, tools.Call) (tools.Result, error) {
			ran = true
			return tools.Result{}, nil
		}
		if got := tools.Execute(ctx, tool, tools.Call{}, tools.ExecuteOptions{}); got.Outcome != tools.Cancelled ||
			ran {
			t.Errorf("with an ended context: outcome %s, ran %v; want cancelled without a run", got.Outcome, ran)
		}
	})
}

func TestExecuteWithoutTimeLeft(t *testing.T) {
	tool := named("fake")
	tool.run = func(context.Context, tools.Call) (tools.Result, error) {
		t.Error("the tool was run")
		return tools.Result{}, nil
	}
	got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{Timeout: -time.Second})
	if diff := cmp.Diff(failed(tools.TimedOut, "tool error: 'fake' timed out after 0 s"), got); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
}

// TestExecuteCallersDeadline tests that the caller's deadline cancels the tool and is
// not its timeout.
func TestExecuteCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tool := named("fake")
		tool.run = func(ctx context.Context, _ tools.Call) (tools.Result, error) {
			<-ctx.Done()
			return tools.Result{}, ctx.Err()
		}
		if got := tools.Execute(ctx, tool, tools.Call{},
			tools.ExecuteOptions{Timeout: time.Minute}); got.Outcome != tools.Cancelled {
			t.Errorf("outcome = %s, want cancelled", got.Outcome)
		}
	})
}

// TestExecuteNested tests that the outer tool's timeout cancels the inner tool.
func TestExecuteNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, outer := named("inner"), named("outer")
		inner.run = func(ctx context.Context, _ tools.Call) (tools.Result, error) {
			<-ctx.Done()
			return tools.Result{}, ctx.Err()
		}
		var innerEnding tools.RunResult
		outer.run = func(ctx context.Context, call tools.Call) (tools.Result, error) {
			innerEnding = tools.Execute(ctx, inner, call, tools.ExecuteOptions{Timeout: time.Minute})
			return tools.Result{}, ctx.Err()
		}
		got := tools.Execute(t.Context(), outer, tools.Call{}, tools.ExecuteOptions{Timeout: time.Second})
		if got.Outcome != tools.TimedOut || innerEnding.Outcome != tools.Cancelled {
			t.Errorf("outer %s, inner %s; want timed_out, cancelled", got.Outcome, innerEnding.Outcome)
		}
	})
}

func TestExecuteAbandons(t *testing.T) {
	tests := []struct {
		name string
		end  func() (tools.Result, error)
		want tools.Outcome
	}{
		{"late success", func() (tools.Result, error) { return tools.Result{Text: "late"}, nil }, tools.Succeeded},
		{"late panic", func() (tools.Result, error) { panic("late") }, tools.Panicked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tool := named("deaf")
				tool.run = func(context.Context, tools.Call) (tools.Result, error) {
					time.Sleep(time.Hour)
					return tt.end()
				}
				late := make(chan tools.RunResult, 1)
				start := time.Now()
				got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{
					Timeout: 10 * time.Second,
					Late:    func(e tools.RunResult) { late <- e },
				})
				want := failed(tools.TimedOut, "tool error: 'deaf' timed out after 10 s")
				want.Abandoned = true
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("ending (-want +got):\n%s", diff)
				}
				if took := time.Since(start); took != 10*time.Second+tools.DefaultGrace ||
					tools.DefaultGrace >= time.Second {
					t.Errorf("took %s, want its timeout and less than a second", took)
				}
				if e := <-late; e.Outcome != tt.want || time.Since(start) != time.Hour {
					t.Errorf("late ending = %+v after %s", e, time.Since(start))
				}
			})
		})
	}
}

func TestExecuteWithoutLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := named("deaf")
		tool.run = func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(time.Minute)
			return tools.Result{}, nil
		}
		got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{Timeout: time.Second,
			Grace: time.Millisecond})
		if got.Outcome != tools.TimedOut || !got.Abandoned {
			t.Errorf("ending = %+v", got)
		}
		time.Sleep(time.Minute) // synctest waits for the tool's goroutine
	})
}

func TestPanicStackGoesToTheLogOnly(t *testing.T) {
	var logged strings.Builder
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&logged),
		zap.DebugLevel))
	tool := named("fake")
	tool.run = func(context.Context, tools.Call) (tools.Result, error) { panic(strings.Repeat("x", 10_000)) }
	got := tools.Execute(t.Context(), tool, tools.Call{TurnID: 7}, tools.ExecuteOptions{Log: log})
	if !strings.Contains(logged.String(), "execute_test.go") || !strings.Contains(logged.String(), `"turn_id":7`) {
		t.Errorf("the log lacks stack or turn: %.300s", logged.String())
	}
	if strings.Contains(got.Result.Text, ".go") || len(got.Result.Text) > 600 {
		t.Errorf("the model is shown too much: %.700s", got.Result.Text)
	}
}
