package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"turnkeeper"
	"turnkeeper/storage"
)

// warmUp turns are run and not counted: connections, statements and caches are
// made by them.
const warmUp = 20

// block is how many turns are measured before the floor is again: both see the
// same machine, whatever else it does.
const block = 10

func (b *bench) measureIdle(ctx context.Context, r *Report) error {
	b.Progress("a turn and the floor, idle")
	var warm, floor, turns idle
	if err := errors.Join(b.repeat(ctx, warmUp, &warm, b.floor.turn), b.repeat(ctx, warmUp, &warm, b.idleTurn)); err != nil {
		return err
	}
	for range max(b.Idle/block, 1) {
		if err := errors.Join(b.repeat(ctx, block, &floor, b.floor.turn), b.repeat(ctx, block, &turns, b.idleTurn)); err != nil {
			return err
		}
	}
	r.FloorReply, r.FirstRequest, r.Reply = latencyOf(floor.took), latencyOf(b.model.untilFirstRequest()[warmUp:]), latencyOf(turns.took)
	r.ReplyRatio = float64(r.Reply.P50) / float64(r.FloorReply.P50)
	r.FloorTxPerTurn, r.WriteTxPerTurn = floor.txPerTurn(), turns.txPerTurn()
	return nil
}

// idle is what was seen of turns that ran one by one.
type idle struct {
	took         []time.Duration
	transactions uint64
}

func (i idle) txPerTurn() float64 { return float64(i.transactions) / float64(len(i.took)) }

func (b *bench) repeat(ctx context.Context, n int, seen *idle, turn func(context.Context) error) error {
	before, err := b.transactions(ctx)
	if err != nil {
		return err
	}
	for range n {
		began := time.Now()
		if err := turn(ctx); err != nil {
			return err
		}
		seen.took = append(seen.took, time.Since(began))
		if err := pause(ctx, b.Pause); err != nil {
			return err
		}
	}
	after, err := b.transactions(ctx)
	seen.transactions += after - before - 1
	return err
}

// idleTurn sends a message and waits for its reply. Each has its own
// conversation, so that history does not grow.
func (b *bench) idleTurn(ctx context.Context) error {
	rings, cancel := b.bell.Subscribe(storage.TopicTurns)
	defer cancel()
	body := b.model.expect()
	id, err := b.store.Enqueue(ctx, turnkeeper.Submission{Agent: "bench", Conversation: body, Body: body})
	if err != nil {
		return err
	}
	return b.awaitReply(ctx, id, rings)
}

// transactions is how many transactions have written so far, this one
// included: each takes one id. Heartbeats and River's upkeep are among them.
func (b *bench) transactions(ctx context.Context) (n uint64, err error) {
	err = b.pool.QueryRow(ctx, "select pg_current_xact_id()::text::bigint").Scan(&n)
	return n, err
}

// pollEvery is how often a waiting sender looks when no doorbell rings.
const pollEvery = time.Second

// awaitReply reads the reply when a doorbell rings that was listened to since
// before the message was sent.
func (b *bench) awaitReply(ctx context.Context, id turnkeeper.MessageID, rings <-chan struct{}) error {
	for {
		timer := time.NewTimer(pollEvery)
		select {
		case <-rings:
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		timer.Stop()
		reply, err := b.store.ReplyTo(ctx, id)
		if err == nil {
			if reply.Outcome != turnkeeper.TurnSucceeded {
				return fmt.Errorf("a turn of the benchmark ended %s: %s", reply.Outcome, reply.Body)
			}
			return nil
		}
		if !errors.Is(err, turnkeeper.ErrNotFound) {
			return err
		}
	}
}

func (b *bench) floorThroughput(ctx context.Context, lanes, turns int) (float64, error) {
	var left atomic.Int64
	left.Store(int64(turns))
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range lanes {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := b.floor.turn(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(turns) / time.Since(began).Seconds(), err
}

// throughput keeps every lane busy: each lane sends its next message when its
// last one is answered, as the floor does.
func (b *bench) throughput(ctx context.Context, lanes, turns int) (float64, error) {
	answered := newAnswers(b)
	defer answered.stop()
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for lane := range lanes {
		group.Go(func() error {
			for i := range turns / lanes {
				id, err := b.store.Enqueue(ctx, turnkeeper.Submission{
					// A conversation of few turns: history is not what is measured.
					Agent: "bench", Conversation: fmt.Sprintf("lanes%d-%d-%d", lanes, lane, i), Body: fmt.Sprintf("turn %d", i),
				})
				if err != nil {
					return err
				}
				if err := answered.await(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(turns/lanes*lanes) / time.Since(began).Seconds(), err
}

// answers tells many senders of their replies by reading the outbox once for
// all of them.
type answers struct {
	bench *bench
	quit  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex
	arrived map[turnkeeper.MessageID]bool
	waiting map[turnkeeper.MessageID]chan struct{}
	failed  error
}

func newAnswers(b *bench) *answers {
	ctx, quit := context.WithCancel(context.Background())
	a := &answers{
		bench: b, quit: quit, done: make(chan struct{}),
		arrived: map[turnkeeper.MessageID]bool{}, waiting: map[turnkeeper.MessageID]chan struct{}{},
	}
	go a.read(ctx)
	return a
}

func (a *answers) stop() {
	a.quit()
	<-a.done
}

func (a *answers) read(ctx context.Context) {
	defer close(a.done)
	rings, cancel := a.bench.bell.Subscribe(storage.TopicTurns)
	defer cancel()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	seen := map[turnkeeper.ReplyID]bool{}
	after := int64(0)
	if latest, err := a.bench.store.LatestReplies(ctx, storage.Page{Limit: 1}); err == nil && len(latest) > 0 {
		after = int64(latest[0].ID)
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-rings:
		case <-poll.C:
		}
		// Ids are taken before commit: look a little behind for late ones.
		for cursor := max(after-200, 0); ; {
			replies, err := a.bench.store.Replies(ctx, storage.Page{Cursor: cursor, Limit: 100})
			if err != nil || len(replies) == 0 {
				break
			}
			for _, reply := range replies {
				cursor = int64(reply.ID)
				if !seen[reply.ID] {
					seen[reply.ID] = true
					a.tell(reply)
				}
			}
			after = max(after, cursor)
		}
	}
}

func (a *answers) tell(reply turnkeeper.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if reply.Outcome != turnkeeper.TurnSucceeded {
		a.failed = fmt.Errorf("a turn of the benchmark ended %s: %s", reply.Outcome, reply.Body)
	}
	a.arrived[reply.MessageID] = true
	if waiting := a.waiting[reply.MessageID]; waiting != nil {
		close(waiting)
		delete(a.waiting, reply.MessageID)
	}
}

func (a *answers) await(ctx context.Context, id turnkeeper.MessageID) error {
	a.mu.Lock()
	if a.arrived[id] || a.failed != nil {
		defer a.mu.Unlock()
		return a.failed
	}
	arrived := make(chan struct{})
	a.waiting[id] = arrived
	a.mu.Unlock()
	select {
	case <-arrived:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
