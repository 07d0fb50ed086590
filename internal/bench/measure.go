package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"turnkeeper"
	"turnkeeper/internal/pause"
	"turnkeeper/storage"
)

// warmUp is the number of blocks that run first and are not counted. They open connections, prepare
// statements and fill caches.
const warmUp = 2

// block returns how many idle turns of a kind are measured before the next kind. Blocks alternate, so
// other load on the machine affects all kinds alike.
func (b *bench) block() int { return min(10, b.Idle) }

func (b *bench) measureIdle(ctx context.Context, r *Report) error {
	if b.Idle == 0 {
		return nil
	}
	b.Progress("a turn, a plain River job and the floor, idle")
	var warm, floor, plain, turns idle
	for range warmUp {
		if err := b.idleBlock(ctx, &warm, &warm, &warm); err != nil {
			return err
		}
	}
	for range b.Idle / b.block() {
		if err := b.idleBlock(ctx, &floor, &plain, &turns); err != nil {
			return err
		}
	}
	r.FloorReply, r.PlainReply, r.Reply = latencyOf(floor.took), latencyOf(plain.took), latencyOf(turns.took)
	r.FirstRequest = latencyOf(b.model.untilFirstRequest()[warmUp*b.block():])
	r.ReplyRatio, r.PlainRatio = ratio(r.Reply, r.FloorReply), ratio(r.PlainReply, r.FloorReply)
	r.FloorTxPerTurn, r.PlainTxPerTurn, r.WriteTxPerTurn = floor.txPerTurn(), plain.txPerTurn(), turns.txPerTurn()
	return nil
}

// idleBlock measures some turns of each kind.
func (b *bench) idleBlock(ctx context.Context, floor, plain, turns *idle) error {
	return errors.Join(
		b.repeat(ctx, b.block(), floor, b.floor.turn),
		b.repeat(ctx, b.block(), plain, b.plain.turn),
		b.repeat(ctx, b.block(), turns, b.idleTurn),
	)
}

// idle holds the measurements of turns that ran one by one.
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
		if err := pause.For(ctx, b.Pause); err != nil {
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
	doorbells, cancel := b.notifier.Subscribe(storage.TopicTurns)
	defer cancel()
	body := b.model.expect()
	id, err := b.store.Enqueue(ctx, turnkeeper.Submission{Agent: "bench", Conversation: body, Body: body})
	if err != nil {
		return err
	}
	return b.awaitReply(ctx, id, doorbells)
}

// transactions returns the number of writing transactions so far, this one included: each takes one
// id. Heartbeats and River's maintenance count too.
func (b *bench) transactions(ctx context.Context) (n uint64, err error) {
	err = b.pool.QueryRow(ctx, "select pg_current_xact_id()::text::bigint").Scan(&n)
	return n, err
}

// pollEvery is how often a waiting sender polls without a doorbell.
const pollEvery = time.Second

// awaitReply waits for the reply. doorbells must be subscribed to before the message is sent.
func (b *bench) awaitReply(ctx context.Context, id turnkeeper.MessageID, doorbells <-chan struct{}) error {
	for {
		timer := time.NewTimer(pollEvery)
		select {
		case <-doorbells:
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

// throughput keeps every lane busy: each lane sends its next message when its last one is answered.
func (b *bench) throughput(ctx context.Context, lanes, turns int) (float64, error) {
	answered := newAnswers(b, lanes)
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
