package agentturn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// resolve replaces the handles in the call's arguments. They can name only the results of
// earlier calls, which never change, so that a call that is started again gets the same
// arguments. An error stops the turn.
func (x *executor) resolve(ctx context.Context, call *calls.Call) error {
	if x.pending.hasOutput() {
		if err := x.commit(ctx); err != nil {
			return err
		}
	}
	values := &values{log: x.log, stored: x.tooling.outputsBefore(call), room: turnkeeper.MaxOutputBytes}
	args, fault, err := x.offered.Resolve(call.Name, call.Arguments, func(text string) (string, error) {
		return values.resolve(ctx, text)
	})
	if refusal, ok := errors.AsType[*outputs.Refusal](err); ok {
		fault = turnlog.RefusedArguments + ": " + refusal.Error() + ". Nothing was run."
	} else if errors.Is(err, turnkeeper.ErrNotFound) {
		fault = "the stored text of a handle is gone. Nothing was run."
	} else if err != nil {
		return err
	}
	if fault != "" {
		call.Unresolvable(fault)
		return nil
	}
	call.Resolve(json.RawMessage(args))
	return nil
}

// outputsBefore returns the stored results of the calls before a call.
func (w *tooling) outputsBefore(call *calls.Call) *toolrun.OutputStore {
	return &toolrun.OutputStore{Turn: w.task.record.Turn.ID, Stored: w.task.cfg.Outputs,
		PageOf: w.task.offered.MaxCharsOf, Calls: w.calls.Earlier(call)}
}

// values resolves the handles of one call.
type values struct {
	log    *zap.Logger
	stored *toolrun.OutputStore
	room   int64 // bytes left for further values
}

// resolve returns the text of a handle, or the argument itself if it is not a handle.
func (v *values) resolve(ctx context.Context, text string) (string, error) {
	handle, ok, err := outputs.ParseHandle(text)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return outputs.Literal(text), nil
	}
	o, err := v.find(ctx, handle)
	if err != nil {
		return "", err
	}
	start, end, err := handle.Within(text, o.Chars)
	if err != nil {
		return "", err
	}
	if end-start > v.room {
		return "", v.tooMuch()
	}
	var value string
	err = retryRead(ctx, v.log, func() (err error) {
		value, err = o.Read(ctx, start, end)
		return err
	})
	if v.room -= int64(len(value)); err == nil && v.room < 0 {
		err = v.tooMuch()
	}
	return value, err
}

func (v *values) tooMuch() error {
	return outputs.NewRefusal(fmt.Sprintf("the texts of its handles have more than %d bytes together",
		turnkeeper.MaxOutputBytes))
}

// find returns the result that a handle names, or a refusal if its text cannot be used.
func (v *values) find(ctx context.Context, handle outputs.Handle) (o tools.Output, err error) {
	i := prompt.IndexOf(v.stored.Calls, handle.ID)
	if i < 0 {
		return o, outputs.NewRefusal(fmt.Sprintf("output:%s: no earlier call or result of this turn has that id",
			handle.ID))
	}
	switch call := v.stored.Calls[i]; {
	case !call.State.Answered():
		return o, outputs.NewRefusal(fmt.Sprintf("output:%s: that call of %s has no result yet", handle.ID, call.Name))
	case call.State != turnkeeper.CallSucceeded:
		return o,
			outputs.NewRefusal(
				fmt.Sprintf("output:%s: that call of %s did not succeed, so there is no result to pass on",
					handle.ID, call.Name))
	}
	var found bool
	err = retryRead(ctx, v.log, func() (err error) {
		o, found, err = v.stored.Find(ctx, handle.ID)
		return err
	})
	switch {
	case err != nil:
	case !found:
		err = turnkeeper.ErrNotFound
	case o.Binary:
		err = outputs.NewRefusal(fmt.Sprintf("output:%s: that result is binary, and cannot be passed on as text",
			handle.ID))
	case o.Cut && !handle.Part:
		err = outputs.NewRefusal(
			fmt.Sprintf("output:%s: only the beginning of that result was kept; say output:%s[0:%d] to pass that on",
				handle.ID, handle.ID, o.Chars))
	}
	return o, err
}

// retryRead retries a read from the store until it succeeds or ctx ends. ErrNotFound is
// not retried.
func retryRead(ctx context.Context, log *zap.Logger, read func() error) error {
	for wait := firstReadRetry; ; wait = min(2*wait, slowReadRetry) {
		err := read()
		if err == nil || errors.Is(err, turnkeeper.ErrNotFound) {
			return err
		}
		log.Warn("cannot read a stored result, trying again", zap.Error(err))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

const (
	firstReadRetry = 50 * time.Millisecond
	slowReadRetry  = time.Second
)
