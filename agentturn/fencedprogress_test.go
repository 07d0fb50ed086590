package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// TestAFencedProgressNoteKillsTheTool checks that a worker kills its tools when the fence
// refuses a write, even if the write only stores a call's progress.
func TestAFencedProgressNoteKillsTheTool(t *testing.T) {
	for name, effect := range map[string]turnkeeper.Effect{"a read": turnkeeper.EffectNone,
		"an effect": turnkeeper.EffectKeyed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bench
				began := time.Now()
				var killed time.Duration
				b = newBench(t, asks("slow")).with(newTool("slow", effect).does(func(ctx context.Context,
					call tools.Call) (tools.Result, error) {
					b.store.dispatch() // another worker has the turn now
					call.Progress("half way")
					<-ctx.Done()
					killed = time.Since(began)
					return tools.Result{}, context.Cause(ctx)
				}))
				b.bounds.Async = false
				_, err := b.dispatch(t.Context())
				if !errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("error %v", err)
				}
				if killed > time.Second {
					t.Errorf("the tool ran on for %s after its worker had lost the turn", killed)
				}
			})
		})
	}
}

// TestEachProgressNoteIsWrittenInTime checks that each note of a call is written while it still runs, within half a
// second or a little more, however long the call was silent before it.
func TestEachProgressNoteIsWrittenInTime(t *testing.T) {
	silences := []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 700 * time.Millisecond,
		time.Second, 1100 * time.Millisecond, 5 * time.Second, 20 * time.Millisecond, time.Minute}
	for name, effect := range map[string]turnkeeper.Effect{"a read": turnkeeper.EffectNone,
		"an effect": turnkeeper.EffectKeyed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bench
				var mu sync.Mutex
				told := map[string]time.Time{}
				b = newBench(t, asks("slow"), says("Done.")).with(newTool("slow", effect).does(func(_ context.Context,
					call tools.Call) (tools.Result, error) {
					for n, silence := range silences {
						time.Sleep(silence)
						text := fmt.Sprint("step ", n)
						mu.Lock()
						told["slow: "+text] = time.Now()
						mu.Unlock()
						call.Progress(text)
					}
					time.Sleep(time.Minute)
					return tools.Result{Text: "ok"}, nil
				}))
				b.bounds.Async, b.bounds.ToolTimeout, b.bounds.MaxDuration = false, time.Hour, 2*time.Hour
				b.lease = 4 * time.Hour
				last := time.Time{}
				b.before = func(e turnlog.Entry) error {
					mu.Lock()
					defer mu.Unlock()
					for _, event := range e.Events {
						if event.Type != turnkeeper.EventNotice {
							continue
						}
						var data turnevents.NoticeData
						b.decode(event.Data, &data)
						if late := time.Since(told[data.Text]); late > 510*time.Millisecond {
							t.Errorf("%q was written after %s", data.Text, late)
						}
						last = told[data.Text]
					}
					return nil
				}
				b.run(t.Context())
				if want := told[fmt.Sprint("slow: step ", len(silences)-1)]; last != want || want.IsZero() {
					t.Errorf("the last note written is of %s, want that of %s; told %v", last, want, told)
				}
			})
		})
	}
}
