package toolrun_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
)

func launch(ordinal int, takes time.Duration) *toolrun.Run {
	call := turnkeeper.ToolCall{Key: turnkeeper.CallKey{Round: 1, Ordinal: ordinal}}
	return toolrun.Launch(context.Background(), call, "", func(ctx context.Context) toolrun.Result {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
		return toolrun.Result{Duration: takes}
	})
}

func TestRunsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := toolrun.Set{launch(1, 3*time.Second), launch(2, 2*time.Second), launch(3, time.Hour)}
		if err := set.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the first ends too
		synctest.Wait()
		last := set[2]
		if !set[0].IsOver() || !set[1].IsOver() || last.IsOver() {
			t.Error("the first two are over")
		}
		set = set[2:]
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errors.New("the worker goes"))
		if err := set.Await(ctx); err == nil || err.Error() != "the worker goes" {
			t.Error(err)
		}
		set.Stop(errors.New("over"))
		if !last.IsOver() {
			t.Error("a run was not stopped")
		}
	})
}

func TestHowLongARunIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := launch(1, 10*time.Second), time.Now()
		<-r.OverOrAfter(5 * time.Second)
		if waited := time.Since(began); waited != 5*time.Second || r.IsOver() {
			t.Errorf("%v", waited)
		}
		<-r.OverOrAfter(20 * time.Second)
		if waited := time.Since(began); waited != 10*time.Second || !r.IsOver() {
			t.Errorf("%v", waited)
		}
	})
}

func TestProgress(t *testing.T) {
	p := toolrun.NewProgress()
	key := turnkeeper.CallKey{Round: 1, Ordinal: 1}
	tell := p.Of(key, "look")
	tell("one")
	tell("two")
	p.Keep(key, "look", "asked")
	<-p.Bell()
	var texts []string
	for _, note := range p.Take() {
		texts = append(texts, note.Data.Text)
	}
	if diff := cmp.Diff([]string{"look: asked", "look: two"}, texts); diff != "" {
		t.Error(diff)
	}
	if len(p.Take()) != 0 {
		t.Error("notes are given twice")
	}
}

// TestAMeterIsReadWhileItCounts reads the usage of a call in the background while its questions are answered. With the
// race detector it also shows that both hold the lock.
func TestAMeterIsReadWhileItCounts(t *testing.T) {
	const each, askers = 100, 4
	var m toolrun.Meter
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for range each {
				m.Add(turnkeeper.Usage{InputTokens: 2, OutputTokens: 1})
			}
		})
		all.Go(func() {
			for range each {
				if u := m.Used(); u.InputTokens != 2*u.OutputTokens {
					t.Errorf("it has used %+v", u)
				}
			}
		})
	}
	all.Wait()
	if u := m.Used(); u.InputTokens != 2*each*askers || u.OutputTokens != each*askers {
		t.Errorf("all used %+v", u)
	}
}
