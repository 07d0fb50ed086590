// Command markerworker is the worker of the black-box tests. Besides the built-in tools it has marker
// tools, which report each of their runs to an HTTP ledger. The ledger counts runs outside of the
// product.
package main

import (
	"bytes"
	"cmp"
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
		marker("mark_none", turnkeeper.EffectNone),
		marker("mark_keyed", turnkeeper.EffectKeyed),
		marker("mark_once", turnkeeper.EffectOnce),
		background("mark_later", turnkeeper.EffectOnce),
		background("mark_later_keyed", turnkeeper.EffectKeyed),
		cancellable("mark_slow", turnkeeper.EffectOnce),
		detached("mark_far_none", turnkeeper.EffectNone),
		detached("mark_far_keyed", turnkeeper.EffectKeyed),
		detached("mark_far_once", turnkeeper.EffectOnce),
		sure{marker("mark_sure", turnkeeper.EffectOnce)},
		large{marker("mark_large", turnkeeper.EffectOnce)},
		misbehave("misbehave", misbehaveTimeout), misbehave("overdo", 0),
		poison(),
		tools.New(tools.Spec{
			Name: "mark_tx", Description: "Makes a mark in the database.", Effect: turnkeeper.EffectOnce,
			Transactional: true,
		}, markInTransaction),
	)
	os.Exit(shell.Main(program.WithFaults(faultpoint.Hook())))
}

// markInTransaction writes a note in the transaction that records its result, and reports to the
// ledger while the transaction is open.
func markInTransaction(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
	tx, ok := storage.TxFrom(ctx)
	if !ok {
		return tools.Result{}, errors.New("no transaction")
	}
	if _, err := tx.Exec(ctx, "insert into turnkeeper.notes (agent, name, content) values ('marks', $1, $1)",
		args.Label); err != nil {
		return tools.Result{}, err
	}
	return report(ctx, newEntry("mark_tx", call, args))
}

// A mark holds the arguments of every marker tool. Its description is in testdata/recordings.
type mark struct {
	Label string `json:"label,omitempty" jsonschema:"told to the ledger"`
}

// An entry reports a run to the ledger.
type entry struct {
	Tool           string `json:"tool"`
	Label          string `json:"label"`
	Turn           int64  `json:"turn"`
	Call           string `json:"call"`
	IdempotencyKey string `json:"idempotency_key"`
	PID            int    `json:"pid"`
}

// newEntry returns the entry of a run by this process.
func newEntry(tool string, call tools.Call, args mark) entry {
	return entry{
		Tool: tool, Label: args.Label, Turn: int64(call.TurnID), Call: call.Key.String(),
		IdempotencyKey: call.IdempotencyKey, PID: os.Getpid(),
	}
}

// marker returns a tool that makes an entry in the ledger and returns the ledger's answer. A run
// continues after its context has ended.
func marker(name string, effect turnkeeper.Effect) tools.Tool {
	return newMarker(tools.Spec{Name: name, Effect: effect}, context.WithoutCancel)
}

// cancellable is a marker whose runs stop with their context.
func cancellable(name string, effect turnkeeper.Effect) tools.Tool {
	return newMarker(tools.Spec{Name: name, Effect: effect}, sameContext)
}

// background is a marker whose calls may move to the background.
func background(name string, effect turnkeeper.Effect) tools.Tool {
	return newMarker(tools.Spec{Name: name, Effect: effect, Background: new(true)}, context.WithoutCancel)
}

// detachedTimeoutVariable names the variable with the timeout of detached markers.
const detachedTimeoutVariable = "MARKER_FAR_TIMEOUT"

// detached is a marker whose calls are detached. Its runs stop with their context.
func detached(name string, effect turnkeeper.Effect) tools.Tool {
	timeout, err := time.ParseDuration(os.Getenv(detachedTimeoutVariable))
	if err != nil {
		timeout = time.Hour
	}
	return newMarker(tools.Spec{Name: name, Effect: effect, Timeout: timeout, Detached: true}, sameContext)
}

// descriptionVariable names the variable with the description of marker tools, which may differ between workers as it
// does between releases.
const descriptionVariable = "MARKER_DESCRIPTION"

func sameContext(ctx context.Context) context.Context { return ctx }

func newMarker(spec tools.Spec, runContext func(context.Context) context.Context) tools.Tool {
	spec.Description = cmp.Or(os.Getenv(descriptionVariable), "Makes a mark.")
	return tools.New(spec, func(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
		return report(runContext(ctx), newEntry(spec.Name, call, args))
	})
}

// sure is a marker with Reconcile.
type sure struct{ tools.Tool }

// Reconcile asks the ledger for a mark with the key of the call.
func (s sure) Reconcile(ctx context.Context, call tools.Call) (tools.Result, bool, error) {
	result, status, err := ask(ctx, http.MethodGet, entry{Tool: s.Spec().Name, IdempotencyKey: call.IdempotencyKey})
	return result, status == http.StatusOK, err
}

// large is a marker that streams a result of a megabyte: first the ledger's answer, byte by byte.
type large struct{ tools.Tool }

func (l large) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	result, err := l.Tool.Run(ctx, call)
	result.Body = io.MultiReader(iotest.OneByteReader(strings.NewReader(result.Text+"\n")),
		io.LimitReader(forever{}, 1<<20))
	return result, err
}

// poison returns a marker tool that kills its worker, as a crash or the kernel's OOM killer would. It
// is keyed, so it may run again, and kills the next worker too.
func poison() tools.Tool {
	spec := tools.Spec{Name: "mark_poison", Description: "Kills its worker.", Effect: turnkeeper.EffectKeyed}
	return tools.New(spec, func(ctx context.Context, call tools.Call, args mark) (tools.Result, error) {
		if _, err := report(ctx, newEntry(spec.Name, call, args)); err != nil {
			return tools.Result{}, err
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return tools.Result{}, err
		}
		select {}
	})
}

// client has a timeout longer than any test holds an answer.
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
		return tools.Result{}, 0, fmt.Errorf("no answer from the ledger: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return tools.Result{}, 0, fmt.Errorf("reading the answer of the ledger: %w", err)
	}
	return tools.Result{Text: string(text)}, response.StatusCode, nil
}
