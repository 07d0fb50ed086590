package operate

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// tryModelsOf makes the models that a message waits for due for a probe. It returns the
// verdict of the message's retry.
func (s *Control) tryModelsOf(ctx context.Context, id turnkeeper.MessageID, verdict string) (string, error) {
	n, err := s.db.Q.TryModelsOfMessage(ctx, int64(id))
	if err != nil || n == 0 {
		return verdict, pg.Translate(err)
	}
	return "due_now", pg.Translate(s.db.Q.RingInbox(ctx))
}

// A FailedScope selects messages that failed for good.
type FailedScope struct {
	Agents     []string  // nil: of all agents
	ErrorClass string    // of their last turn; empty: any
	Since      time.Time // when they failed at the earliest; zero: any time
}

// failedBatch is the number of messages that one query returns.
const failedBatch = 200

// RetryFailed retries the failed messages of a scope, oldest first, each as Retry does. It
// skips messages that were already retried, so it can be repeated after an error.
func (s *Control) RetryFailed(ctx context.Context, scope FailedScope) (retried []BulkRetried, err error) {
	for after := turnkeeper.MessageID(0); ; {
		rows, err := s.db.Q.FailedMessages(ctx, dbsqlc.FailedMessagesParams{
			After: int64(after), Agents: dbrow.OrEmpty(scope.Agents), ErrorClass: scope.ErrorClass,
			Since: dbrow.OrNullTime(scope.Since), MaxRows: failedBatch,
		})
		if err != nil {
			return retried, pg.Translate(err)
		}
		for _, r := range rows {
			after = turnkeeper.MessageID(r.ID)
			done, err := s.Retry(ctx, after, false)
			if err != nil {
				return retried, err
			}
			if !done.Repeat {
				retried = append(retried, BulkRetried{Message: after, As: done.Message, Agent: r.Agent,
					ErrorClass: r.ErrorClass})
			}
		}
		if len(rows) < failedBatch {
			return retried, nil
		}
	}
}

// A BulkRetried is a failed message that RetryFailed retried, and its new message.
type BulkRetried struct {
	Message, As turnkeeper.MessageID
	Agent       string
	ErrorClass  string
}

// A Retried is the result of a retry.
type Retried struct {
	Message turnkeeper.MessageID // the message that will be handled: a new one, or the given one
	DueNow  bool                 // the message was waiting for its time, and is due now
	Repeat  bool                 // the message was retried before, as Message
}

// Retry retries a message. A message that failed for good is put into the inbox as a new
// message, because it already has its one reply; a repeat returns the same new message.
// A message that waits after a failure or for a budget becomes due now. A message with a
// degraded or cancelled turn, which may have had effects, is retried only if anyway is
// set, or if it was cancelled while it waited; otherwise Retry fails with
// ErrMayRepeatEffects. Retry fails with turnkeeper.ErrWrongState if the message cannot
// be retried, with turnkeeper.ErrAgentRetired if its agent is retired and would need a
// new message, and with ErrNotFound if there is no such message.
func (s *Control) Retry(ctx context.Context, id turnkeeper.MessageID, anyway bool) (Retried, error) {
	switch agent, err := s.db.Q.RetiredAgentOf(ctx, int64(id)); {
	case err == nil:
		return Retried{}, pg.Refuse(turnkeeper.ErrAgentRetired, "agent '%s' is retired and takes no new messages",
			agent)
	case !errors.Is(err, pgx.ErrNoRows):
		return Retried{}, pg.Translate(err)
	}
	row, err := s.db.Q.RetryMessage(ctx, int64(id), anyway)
	if err != nil {
		return Retried{}, heldUp(err)
	}
	if row.Verdict == "waiting" || row.Verdict == "due_now" {
		if row.Verdict, err = s.tryModelsOf(ctx, id, row.Verdict); err != nil {
			return Retried{}, err
		}
	}
	refused := func(why string) (Retried, error) {
		return Retried{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d %s", id, why)
	}
	done := Retried{Message: turnkeeper.MessageID(row.Message)}
	switch row.Verdict {
	case "new":
		return done, nil
	case "repeated":
		done.Repeat = true
		return done, nil
	case "due_now":
		done.DueNow = true
		return done, nil
	case "waiting":
		return refused("waits in the inbox and is due already")
	case "running":
		return refused("is being handled")
	case "succeeded":
		return refused("has succeeded; send it again as a message of its own if you want a second answer")
	case "risky":
		acted, err := s.db.Q.HasActed(ctx, int64(id))
		if err != nil {
			return Retried{}, pg.Translate(err)
		}
		why := "was closed without a plain answer, and no tool with an effect was started"
		if acted {
			why = "may have had effects already, which another try would have again"
		}
		done, err := refused(why)
		return done, &riskyError{err}
	default:
		return Retried{}, turnkeeper.ErrNotFound
	}
}

// ErrMayRepeatEffects means that Retry needs anyway. Its errors also match
// turnkeeper.ErrWrongState.
var ErrMayRepeatEffects = errors.New("effects may happen twice")

type riskyError struct{ error }

func (e *riskyError) Is(target error) bool { return target == ErrMayRepeatEffects }

func (e *riskyError) Unwrap() error { return e.error }

// RetriesOf returns the message as which a message was retried, and the message of which
// it is the retry. 0: none.
func (s *Views) RetriesOf(ctx context.Context, id turnkeeper.MessageID) (as, of turnkeeper.MessageID, err error) {
	rows, err := s.db.Q.RetryOf(ctx, int64(id))
	for _, r := range rows {
		if turnkeeper.MessageID(r.MessageID) == id {
			as = turnkeeper.MessageID(r.RetriedAs)
		} else {
			of = turnkeeper.MessageID(r.MessageID)
		}
	}
	return as, of, pg.Translate(err)
}
