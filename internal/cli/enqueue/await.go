package enqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/cli/follow"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage"
)

// A waiting waits for the reply to an accepted message.
type awaiting struct {
	*enqueuing

	db       *database.Database
	accepted acceptedView
	watcher  *follow.Watcher
	reported int              // the last failed attempt that was reported
	said     []waiting.Reason // why it waits, as reported
}

// The poll interval grows from minPoll to maxPoll.
const (
	minPoll = 200 * time.Millisecond
	maxPoll = 2 * time.Second
)

var errWaitTimeout = errors.New("the wait timed out")

func (w *awaiting) run(ctx context.Context) error {
	ctx, cancel := w.limit(ctx)
	defer cancel()
	notifier, stop := follow.StartNotifier(ctx, w.db)
	defer stop()
	w.watcher = &follow.Watcher{
		Source: follow.EventSource{Store: w.db.Store, Bell: notifier}, Progress: follow.NewProgress(w.Err,
			w.verbose && !w.json, w.json),
	}
	message, reply, err := w.closed(ctx, notifier)
	w.watcher.Settle(err == nil)
	if err != nil {
		return w.broken(ctx, message, err)
	}
	return w.finish(message, reply)
}

func (w *awaiting) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.waitTimeout == 0 {
		return context.WithCancel(ctx)
	}
	timeout := w.waitTimeout
	if due := w.accepted.DueAt; due != nil {
		timeout += max(0, time.Until(*due))
	}
	return context.WithTimeoutCause(ctx, timeout, errWaitTimeout)
}

// closed waits until the message is closed, while the watcher shows its turns.
// With an error it returns the message as last read.
func (w *awaiting) closed(ctx context.Context, notifier *storage.Notifier) (waiting.Message, *turnkeeper.Reply, error) {
	rings, unsubscribe := notifier.Subscribe(storage.TopicTurns)
	defer unsubscribe()
	answered := time.Now()
	last := waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageWaiting}} // as accepted
	for wait := minPoll; ; wait = min(wait*3/2, maxPoll) {
		message, reply, err := w.read(ctx)
		if err == nil {
			last, answered = message, time.Now()
			w.watcher.Turn(ctx, message.TurnID)
			w.reportFailure(message)
			w.reportWaits(message)
		}
		switch {
		case err == nil && !message.ClosedAt.IsZero():
			return message, reply, nil
		case err == nil:
		case errors.Is(err, turnkeeper.ErrNotFound) || time.Since(answered) > follow.Patience:
			return last, nil, err
		}
		if follow.WaitFor(ctx, rings, wait); ctx.Err() != nil {
			return last, nil, context.Cause(ctx)
		}
	}
}

// reportFailure prints the error of a failed attempt that will be retried: the
// pause before the retry can take minutes.
func (w *awaiting) reportFailure(m waiting.Message) {
	if w.json || m.State != turnkeeper.MessageWaiting || m.LastError == "" || m.Attempts == w.reported {
		return
	}
	w.reported = m.Attempts
	w.watcher.Settle(true)
	w.Err.Line("%s", w.Err.Paint(term.Warned, fmt.Sprintf("attempt %d failed: %s; it is retried after a pause",
		m.Attempts, term.OneLine(w.Masker.String(m.LastError), 500))))
}

// reportWaits prints what the message waits for, each reason once. Lanes, slots and the next tick are not worth a line,
// and that no worker runs, or that a failed attempt is retried, is reported elsewhere.
func (w *awaiting) reportWaits(m waiting.Message) {
	for _, wait := range m.Waits {
		row, _ := waiting.RowOf(wait.Reason)
		said := slices.Contains(w.said, wait.Reason) || wait.Reason == waiting.NoWorker ||
			wait.Reason == waiting.LaneBackoff
		if w.json || said || row.Minor || row.Running {
			continue
		}
		w.said = append(w.said, wait.Reason)
		w.watcher.Settle(true)
		text := w.Masker.String(wait.Long(func(t time.Time) string { return t.Local().Format(time.TimeOnly) }))
		w.Err.Line("%s", w.Err.Paint(term.Warned, "the message waits: "+term.OneLine(text, 500)))
	}
}

// read reads the message and, once it is closed, its reply.
func (w *awaiting) read(ctx context.Context) (m waiting.Message, reply *turnkeeper.Reply, err error) {
	if m, err = w.db.Store.WaitingMessage(ctx, w.accepted.MessageID); err != nil || m.ClosedAt.IsZero() {
		return m, nil, err
	}
	found, err := w.db.Store.ReplyTo(ctx, w.accepted.MessageID)
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return m, nil, nil
	case err != nil:
		return m, nil, err
	}
	return m, &found, nil
}

// broken returns the error of an interrupted wait. It says that the message stays accepted.
func (w *awaiting) broken(ctx context.Context, m waiting.Message, err error) error {
	id := w.accepted.MessageID
	stays := fmt.Sprintf(`message %d stays accepted; "turnctl explain --message %d" shows what it waits for`, id, id)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case errors.Is(err, errWaitTimeout):
		if w.json {
			view := w.accepted
			view.awaitedView = &awaitedView{State: m.State, TurnID: views.OrNull(m.TurnID)}
			_ = shell.WriteJSON(w.Stdout, view)
		}
		return shell.Exit(shell.ExitNoReply, fmt.Errorf("no reply within %s: %s", w.waitTimeout, stays))
	case errors.Is(err, shell.ErrInterrupted), errors.Is(err, context.Canceled):
		return shell.Exit(shell.ExitSignal, errors.New("no longer waiting: "+stays))
	default:
		return fmt.Errorf("the wait failed; %s: %w", stays, err)
	}
}

// finish prints the reply. Its error is the outcome of the message, if that is not plain success.
func (w *awaiting) finish(m waiting.Message, reply *turnkeeper.Reply) error {
	if err := w.printReply(m, reply); err != nil {
		return err
	}
	turn := fmt.Sprintf(`turn %d; see "turnctl show %d"`, m.TurnID, m.TurnID)
	switch {
	case m.State == turnkeeper.MessageFailed:
		return shell.Exit(shell.ExitNotDone, fmt.Errorf("the message failed in its %s: %s", turn,
			term.OrDash(m.LastError)))
	case m.State == turnkeeper.MessageCancelled:
		return shell.Exit(shell.ExitNotDone, fmt.Errorf("the message was cancelled in its %s", turn))
	case reply != nil && reply.Outcome == turnkeeper.TurnDegraded:
		text := "the reply is degraded: it may be incomplete"
		if reply.Body == "" {
			text = "the outcome is degraded, and the agent is set to send no text then"
		}
		return shell.Exit(shell.ExitDegraded, fmt.Errorf("%s (%s, %s)", text, reply.StopReason, turn))
	case w.json:
		return nil
	case w.Err.Terminal || w.verbose:
		w.Err.Line("%s", w.Err.Paint(term.Dim, turn))
	}
	return nil
}

func (w *awaiting) printReply(m waiting.Message, reply *turnkeeper.Reply) error {
	if w.json {
		view := w.accepted
		view.awaitedView = &awaitedView{State: m.State, TurnID: views.OrNull(m.TurnID)}
		if reply != nil {
			view.Outcome, view.ReplyID, view.Reply = &reply.Outcome, &reply.ID, &reply.Body
			view.ReplyEnd = new(views.EndOfReply(*reply))
		}
		return shell.WriteJSON(w.Stdout, view)
	}
	if reply == nil || reply.Body == "" {
		return nil
	}
	body := reply.Body
	if w.Out.Terminal { // programs get the exact bytes
		body = term.Plain(body)
	}
	_, err := fmt.Fprintln(w.Stdout, body)
	return err
}
