package bench

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A pendingWrite is a write whose turn waits for the commit.
type pendingWrite struct {
	floorWrite
	done chan error
}

// startGroupFloor starts the floor with one writer: while it commits, it collects what the turns want
// to write next, and commits that in one transaction.
func startGroupFloor(ctx context.Context, s setup) (part, error) {
	f, err := newFloor(ctx, s)
	if err != nil {
		return nil, err
	}
	pending, ended := make(chan pendingWrite), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		f.commitGroups(ctx, pending)
	}()
	f.stop = func() { cancel(); <-ended }
	f.write = func(ctx context.Context, w floorWrite) error {
		done := make(chan error, 1)
		select {
		case pending <- pendingWrite{w, done}:
			return <-done
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return f, nil
}

// commitGroups commits writes until ctx ends. It answers every write that it has taken.
func (f *floor) commitGroups(ctx context.Context, pending <-chan pendingWrite) {
	for {
		var group []pendingWrite
		select {
		case w := <-pending:
			group = append(group, w)
		case <-ctx.Done():
			return
		}
		for more := true; more; {
			select {
			case w := <-pending:
				group = append(group, w)
			default:
				more = false
			}
		}
		err := f.commit(ctx, group)
		for _, w := range group {
			w.done <- err
		}
	}
}

// columns are the values of the rows that one statement writes.
type columns struct {
	messages []int64
	steps    []int
	texts    []string
}

// commit writes a group in one round trip and one transaction.
func (f *floor) commit(ctx context.Context, group []pendingWrite) error {
	var messages, steps, replies columns
	for _, w := range group {
		to := &steps
		switch w.step {
		case 0:
			to = &messages
		case lastStep:
			to = &replies
		}
		to.messages, to.steps, to.texts = append(to.messages, w.message), append(to.steps, w.step),
			append(to.texts, w.text)
	}
	var batch pgx.Batch
	if len(messages.messages) > 0 {
		batch.Queue("insert into floor_messages (id, body) select * from unnest($1::bigint[], $2::text[])",
			messages.messages, messages.texts)
	}
	if len(steps.messages) > 0 {
		batch.Queue(
			"insert into floor_steps (message_id, step, content) select * from unnest($1::bigint[], $2::integer[], $3::text[])",
			steps.messages, steps.steps, steps.texts)
	}
	if len(replies.messages) > 0 {
		batch.Queue(
			"update floor_messages m set reply = r.text from unnest($1::bigint[], $2::text[]) r (id, text) where m.id = r.id",
			replies.messages, replies.texts)
	}
	return f.pool.SendBatch(ctx, &batch).Close()
}
