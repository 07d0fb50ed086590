package webhooks_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/webhooks"
)

// TestLimits names the test of each limit.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"firstWait":       {Test: "TestBackoff"},
		"longest":         {Test: "TestBackoff"},
		"waitFactor":      {Test: "TestBackoff"},
		"noteTime":        {Test: "TestResultsAreRecordedUntilTheClaimExpires"},
		"seeEvery":        {Test: "TestWhenTheStoreIsAsked"},
		"pace":            {Test: "TestWhenTheStoreIsAsked"},
		"fullPause":       {Test: "TestWhenTheStoreIsAsked"},
		"afterError":      {Test: "TestWhenTheStoreIsAsked"},
		"maxHeaderBytes":  {Test: "TestAnswers"},
		"maxExcerptChars": {Test: "TestExcerpt"},
		"maxDrainBytes":   {Test: "TestAnswers"},
		"drainTime":       {Test: "TestAnswers"},
	})
}

// A diary is a Store that writes down when it was asked.
type diary struct {
	began time.Time
	hold  time.Duration // of the last claims

	mu      sync.Mutex
	claims  []time.Duration
	seen    []time.Duration
	notes   []time.Duration
	ends    []outbox.DeliveryEnd
	give    []outbox.DeliveryClaim // with the next query
	due     time.Duration          // when the next delivery is due; 0: there is none
	away    bool                   // queries fail
	lost    bool                   // queries of when the next delivery is due fail
	noNotes time.Duration          // until then no result can be recorded
	gone    bool                   // the webhook was removed
}

func (d *diary) RegisterWebhook(context.Context, outbox.Webhook) error { return nil }

func (d *diary) SeeWebhooks(_ context.Context, names []string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, time.Since(d.began))
	if d.gone {
		return nil, nil
	}
	return names, nil
}

func (d *diary) ClaimDeliveries(_ context.Context, _ string, _ turnkeeper.WorkerID, _, _ int,
	hold time.Duration) ([]outbox.DeliveryClaim, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims, d.hold = append(d.claims, time.Since(d.began)), hold
	if d.away {
		return nil, errAway
	}
	given := d.give
	d.give = nil
	return given, nil
}

func (d *diary) NextDelivery(context.Context, string) (time.Duration, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost {
		return 0, false, errAway
	}
	return max(0, d.due-time.Since(d.began)), d.due > 0, nil
}

func (d *diary) EndDelivery(_ context.Context, _ outbox.DeliveryClaim, end outbox.DeliveryEnd) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, time.Since(d.began))
	if time.Since(d.began) < d.noNotes {
		return false, errAway
	}
	d.ends = append(d.ends, end)
	return true, nil
}

// keep runs a Deliverer for d with one endpoint, whose replies cannot be written as JSON: an attempt ends without a
// connection.
func (d *diary) keep(t *testing.T, log *zap.Logger) {
	t.Helper()
	d.began = time.Now()
	e := endpoint("shop", "http://127.0.0.1:1")
	e.Timeout = 7 * time.Second
	deliverer := webhooks.New(webhooks.Config{
		Store: d, Endpoints: []webhooks.Endpoint{e}, PollInterval: time.Minute, Log: log,
		Rings: func() (<-chan struct{}, func()) { return nil, func() {} }, Mask: func(s string) string { return s },
		View: func(turnkeeper.Reply) any { return func() {} },
	})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { deliverer.Run(ctx, t.Context()) })
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
}

func wantTimes(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s at %v, want %v", what, got, want)
	}
}

const ms = time.Millisecond

// TestWhenTheStoreIsAsked checks the times of queries without a doorbell: at each poll, when a delivery is due, twice a
// second while one is due that other workers hold up, and after a failure.
func TestWhenTheStoreIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		d.keep(t, zap.NewNop())
		time.Sleep(2*time.Minute + 30*time.Second)
		synctest.Wait()
		wantTimes(t, "queries of an empty queue", d.claims, 0, time.Minute+50*ms, 2*time.Minute+100*ms)
		if want := 16; len(d.seen) != want || d.seen[1] != 10*time.Second || d.seen[15] != 150*time.Second {
			t.Errorf("the webhook was seen at %v", d.seen)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := &diary{due: 20 * time.Second}
		d.keep(t, zap.NewNop())
		time.Sleep(21 * time.Second)
		synctest.Wait()
		wantTimes(t, "queries with a delivery in 20 s", d.claims, 0, 20*time.Second+50*ms, 20*time.Second+600*ms)
	})
	synctest.Test(t, func(t *testing.T) {
		d := &diary{away: true}
		d.keep(t, zap.NewNop())
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantTimes(t, "queries of a database that is away", d.claims, 0, 5*time.Second, 10*time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		d := &diary{lost: true}
		d.keep(t, zap.NewNop())
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantTimes(t, "queries without a time of the next", d.claims, 0, 5*time.Second+50*ms, 10*time.Second+100*ms)
	})
}

// TestResultsAreRecordedUntilTheClaimExpires checks that a result that cannot be recorded is tried again each half
// second, for the timeout of an attempt and 30 s from the claim.
func TestResultsAreRecordedUntilTheClaimExpires(t *testing.T) {
	for _, away := range []time.Duration{0, 36 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{noNotes: away, give: []outbox.DeliveryClaim{{Webhook: "shop", Attempt: 1}}}
			d.keep(t, zap.NewNop())
			time.Sleep(time.Minute)
			synctest.Wait()
			if d.hold != 37*time.Second {
				t.Errorf("the claim is held for %s", d.hold)
			}
			last := min(away, 37*time.Second) // a retry exactly at the end of the claim comes too late
			if n := int(last/(500*ms)) + 1; len(d.notes) < n-1 || len(d.notes) > n ||
				d.notes[len(d.notes)-1] < last-500*ms {
				t.Errorf("away for %s, it was tried at %v", away, d.notes)
			}
			if recorded := away < 37*time.Second; recorded != (len(d.ends) == 1) || recorded &&
				d.ends[0].State != outbox.DeliveryDead {
				t.Errorf("away for %s, recorded: %+v", away, d.ends)
			}
		})
	}
}

// TestARemovedWebhook checks that a removal is logged once, and again after the webhook came back.
func TestARemovedWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logged := observed()
		d := &diary{}
		d.keep(t, log)
		for i, step := range []struct {
			gone bool
			want int
		}{{false, 0}, {true, 1}, {true, 1}, {false, 1}, {true, 2}} {
			d.mu.Lock()
			d.gone = step.gone
			d.mu.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := logged(); got != step.want {
				t.Errorf("step %d: %d lines are logged, want %d", i, got, step.want)
			}
		}
	})
}

// observed returns a logger, and a function that counts its lines.
func observed() (*zap.Logger, func() int) {
	core, logs := observer.New(zapcore.InfoLevel)
	return zap.New(core), logs.Len
}
