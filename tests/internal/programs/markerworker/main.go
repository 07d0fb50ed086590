// Command markerworker is the worker of the black-box tests: beside the built-in
// tools it has some that report each of their runs to an HTTP ledger outside
// the product, so that the ledger, and not Turnkeeper, says how often a tool
// ran.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing/iotest"
	"time"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/storage"
	"turnkeeper/tests/internal/faultpoint"
	"turnkeeper/tools"
)

// ledgerVariable names the variable with the ledger's address.
const ledgerVariable = "MARKER_LEDGER_URL"

func main() {
	program := worker.Program(
		marker("mark_none", turnkeeper.EffectNone, context.WithoutCancel),
		marker("mark_keyed", turnkeeper.EffectKeyed, context.WithoutCancel),
		marker("mark_once", turnkeeper.EffectOnce, context.WithoutCancel),
		background("mark_later", turnkeeper.EffectOnce),
		background("mark_later_keyed", turnkeeper.EffectKeyed),
		marker("mark_slow", turnkeeper.EffectOnce, asItIs),
		detached("mark_far_none", turnkeeper.EffectNone),
		detached("mark_far_keyed", turnkeeper.EffectKeyed),
		detached("mark_far_once", turnkeeper.EffectOnce),
		sure{marker("mark_sure", turnkeeper.EffectOnce, context.WithoutCancel)},
		large{marker("mark_large", turnkeeper.EffectOnce, context.WithoutCancel)},
		misbehave("misbehave", misbehaveTimeout), misbehave("overdo", 0),
		poison(),
		tools.New(tools.Spec{
			Name: "mark_tx", Description: "Makes a mark in the database.", Effect: turnkeeper.EffectOnce, Transactional: true,
		}, markInTransaction),
	)
	os.Exit(shell.Main(program.WithFaults(faultpoint.Hook())))
}

// markInTransaction marks in the transaction that records its result, and tells
// the ledger while that is open.
func markInTransaction(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
	tx, ok := storage.TxFrom(ctx)
	if !ok {
		return tools.Result{}, errors.New("there is no transaction")
	}
	if _, err := tx.Exec(ctx, "insert into turnkeeper.notes (agent, name, content) values ('marks', $1, $1)", args.Label); err != nil {
		return tools.Result{}, err
	}
	return report(ctx, entry{Tool: "mark_tx", Label: args.Label, Turn: int64(call.TurnID), Call: call.Key.String(), PID: os.Getpid()})
}

func asItIs(ctx context.Context) context.Context { return ctx }

// A mark is the arguments of every marker tool.
type mark struct {
	Label string `json:"label,omitempty" jsonschema:"told to the ledger"`
}

// An entry is one run, as the ledger hears of it.
type entry struct {
	Tool           string `json:"tool"`
	Label          string `json:"label"`
	Turn           int64  `json:"turn"`
	Call           string `json:"call"`
	IdempotencyKey string `json:"idempotency_key"`
	PID            int    `json:"pid"`
}

// marker makes a tool whose whole effect is an entry in the ledger, and whose
// result is the ledger's answer. patience says which context the run obeys:
// mark_slow stops with its turn, the others finish what they began.
func marker(name string, effect turnkeeper.Effect, patience func(context.Context) context.Context) tools.Tool {
	spec := tools.Spec{Name: name, Description: "Makes a mark.", Effect: effect}
	return tools.New(spec, func(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
		return report(patience(ctx), entry{
			Tool: name, Label: args.Label, Turn: int64(call.TurnID), Call: call.Key.String(),
			IdempotencyKey: call.IdempotencyKey, PID: os.Getpid(),
		})
	})
}

// background is a marker whose calls may go on in the background.
func background(name string, effect turnkeeper.Effect) tools.Tool {
	return tools.New(
		tools.Spec{Name: name, Description: "Makes a mark.", Effect: effect, Background: new(true)},
		func(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
			return report(context.WithoutCancel(ctx), entry{
				Tool: name, Label: args.Label, Turn: int64(call.TurnID), Call: call.Key.String(),
				IdempotencyKey: call.IdempotencyKey, PID: os.Getpid(),
			})
		},
	)
}

// farVariable names the variable with the time limit of detached markers.
const farVariable = "MARKER_FAR_TIMEOUT"

// detached is a marker whose runs are apart from their turns, and stop with their
// context.
func detached(name string, effect turnkeeper.Effect) tools.Tool {
	limit, err := time.ParseDuration(os.Getenv(farVariable))
	if err != nil {
		limit = time.Hour
	}
	spec := tools.Spec{Name: name, Description: "Makes a mark, and takes its time.", Effect: effect, Timeout: limit, Detached: true}
	return tools.New(spec, func(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
		return report(ctx, entry{
			Tool: name, Label: args.Label, Turn: int64(call.TurnID), Call: call.Key.String(),
			IdempotencyKey: call.IdempotencyKey, PID: os.Getpid(),
		})
	})
}

// sure is a marker that can look up in the ledger whether a run has happened.
type sure struct{ tools.Tool }

// Reconcile asks the ledger for a mark with the call's key.
func (s sure) Reconcile(ctx context.Context, call tools.Call) (tools.Result, bool, error) {
	result, status, err := ask(ctx, http.MethodGet, entry{Tool: s.Spec().Name, IdempotencyKey: call.IdempotencyKey})
	return result, status == http.StatusOK, err
}

// large is a marker whose result comes as a megabyte of a stream, the ledger's
// answer byte by byte.
type large struct{ tools.Tool }

func (l large) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	result, err := l.Tool.Run(ctx, call)
	result.Body = io.MultiReader(iotest.OneByteReader(strings.NewReader(result.Text+"\n")), io.LimitReader(forever{}, 1<<20))
	return result, err
}

// poison is a marker tool that kills its own worker, as a crash in its code or
// the kernel's memory killer would. It may run again, so it does so each time.
func poison() tools.Tool {
	spec := tools.Spec{Name: "mark_poison", Description: "Kills its worker.", Effect: turnkeeper.EffectKeyed}
	return tools.New(spec, func(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
		_, err := report(ctx, entry{
			Tool: spec.Name, Label: args.Label, Turn: int64(call.TurnID), Call: call.Key.String(),
			IdempotencyKey: call.IdempotencyKey, PID: os.Getpid(),
		})
		if err != nil {
			return tools.Result{}, err
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return tools.Result{}, err
		}
		select {}
	})
}

// client waits for the ledger longer than any test holds an answer back.
var client = &http.Client{Timeout: 2 * time.Minute}

func report(ctx context.Context, e entry) (tools.Result, error) {
	result, status, err := ask(ctx, http.MethodPost, e)
	result.IsError = status != http.StatusOK
	return result, err
}

func ask(ctx context.Context, method string, e entry) (result tools.Result, status int, err error) {
	body, err := json.Marshal(e)
	if err != nil {
		return tools.Result{}, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, method, os.Getenv(ledgerVariable), bytes.NewReader(body))
	if err != nil {
		return tools.Result{}, 0, fmt.Errorf("%s: %w", ledgerVariable, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return tools.Result{}, 0, fmt.Errorf("the ledger does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return tools.Result{}, 0, fmt.Errorf("the ledger's answer is cut: %w", err)
	}
	return tools.Result{Text: string(text)}, response.StatusCode, nil
}
