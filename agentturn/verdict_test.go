package agentturn_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/agentturn"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	base := agentturn.Failure{MaxAttempts: 3, GiveUpAfter: day}
	with := func(change func(*agentturn.Failure)) agentturn.Failure {
		f := base
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		failure agentturn.Failure
		want    agentturn.Verdict
	}{
		"the service failed": {
			with(func(f *agentturn.Failure) { f.Pause = 4 * time.Second }),
			agentturn.Verdict{Retry: true, Backoff: 4 * time.Second},
		},
		"the service failed, and reads have run": {
			with(func(f *agentturn.Failure) { f.Pause, f.Ran = 4*time.Second, true }),
			agentturn.Verdict{Retry: true, Backoff: 4 * time.Second},
		},
		"the service asks for an hour": {
			with(func(f *agentturn.Failure) { f.Pause = time.Hour }),
			agentturn.Verdict{Retry: true, Backoff: 120 * time.Second},
		},
		"the service failed for long, and attempts have counted": {
			with(func(f *agentturn.Failure) { f.Waited, f.Counted = 23*time.Hour, 2 }),
			agentturn.Verdict{Retry: true},
		},
		"the pause is longer than the wait may be": {
			with(func(f *agentturn.Failure) { f.Waited, f.Pause = day-time.Second, time.Minute }),
			agentturn.Verdict{Retry: true, Backoff: time.Second},
		},
		"the wait for the service is over": {
			with(func(f *agentturn.Failure) { f.Waited = day }),
			agentturn.Verdict{},
		},
		"no wait for the service": {
			with(func(f *agentturn.Failure) { f.GiveUpAfter = 0 }),
			agentturn.Verdict{},
		},
		"an effect has started": {
			with(func(f *agentturn.Failure) { f.Ran, f.Effects = true, true }),
			agentturn.Verdict{Degraded: true},
		},
		"the message is refused": {
			with(func(f *agentturn.Failure) { f.Fault = agentturn.FaultMessage }),
			agentturn.Verdict{Counted: true},
		},
		"the message is refused after reads": {
			with(func(f *agentturn.Failure) { f.Fault, f.Ran = agentturn.FaultMessage, true }),
			agentturn.Verdict{Counted: true},
		},
		"the first unusable answer": {
			with(func(f *agentturn.Failure) { f.Fault = agentturn.FaultAnswer }),
			agentturn.Verdict{Counted: true, Retry: true, Backoff: 2 * time.Second},
		},
		"the second unusable answer": {
			with(func(f *agentturn.Failure) { f.Fault, f.Counted = agentturn.FaultAnswer, 1 }),
			agentturn.Verdict{Counted: true, Retry: true, Backoff: 4 * time.Second},
		},
		"the third unusable answer": {
			with(func(f *agentturn.Failure) { f.Fault, f.Counted = agentturn.FaultAnswer, 2 }),
			agentturn.Verdict{Counted: true},
		},
		"too slow": {
			with(func(f *agentturn.Failure) { f.Fault = agentturn.FaultTime }),
			agentturn.Verdict{Counted: true, Retry: true, Backoff: 2 * time.Second},
		},
		"too slow for the third time": {
			with(func(f *agentturn.Failure) { f.Fault, f.Counted = agentturn.FaultTime, 2 }),
			agentturn.Verdict{Counted: true},
		},
		"too slow after reads": {
			with(func(f *agentturn.Failure) { f.Fault, f.Ran = agentturn.FaultTime, true }),
			agentturn.Verdict{Degraded: true},
		},
		"another bound": {
			with(func(f *agentturn.Failure) { f.Fault = agentturn.FaultBound }),
			agentturn.Verdict{Counted: true},
		},
		"a panic": {
			with(func(f *agentturn.Failure) { f.Fault = agentturn.FaultInside }),
			agentturn.Verdict{Counted: true, Retry: true, Backoff: 2 * time.Second},
		},
	} {
		if diff := cmp.Diff(c.want, c.failure.Verdict()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
