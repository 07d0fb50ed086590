package operate_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// fill gives each exported field that is zero a value of its own. n counts the values.
func fill(v reflect.Value, n *int) {
	if *n++; v.Kind() != reflect.Struct && !v.IsZero() {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2030, 1, 1, 0, 0, *n, 0, time.UTC)))
		return
	case time.Duration:
		v.SetInt(int64(*n) * int64(time.Millisecond))
		return
	case []byte: // JSON
		v.SetBytes(fmt.Appendf(nil, `{"n":%d}`, *n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	}
}

// TestWhatIsWrittenIsShown writes records with another value in each field, and reads them like an operator, twice. The
// fields left out are written later, or not by this record.
func TestWhatIsWrittenIsShown(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	n := 100
	answer := storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectNone)
	for i := range answer.Calls {
		planned := answer.Calls[i]
		fill(reflect.ValueOf(&planned).Elem(), &n)
		answer.Calls[i].ProviderID, answer.Calls[i].RawArgs, answer.Calls[i].Paging = planned.ProviderID,
			planned.RawArgs, planned.Paging
		answer.Calls[i].Arguments = fmt.Sprintf(`{"n":%d}`, i)
	}
	fill(reflect.ValueOf(answer).Elem(), &n)
	var failed []turnlog.FailedAttempt
	for range 3 {
		f := turnlog.FailedAttempt{Round: 1, Attempt: len(failed) + 1}
		fill(reflect.ValueOf(&f).Elem(), &n)
		failed = append(failed, f)
	}
	d.Write(t, turnlog.Entry{Failed: failed[:1]})
	d.Write(t, turnlog.Entry{Failed: failed[1:], Round: answer})
	result := turnlog.CallResult{Key: storagetest.Key(1, 2), State: turnkeeper.CallSucceeded,
		Output: &turnkeeper.Output{
			ID: "output", TurnID: d.Grant.TurnID, Call: storagetest.Key(1, 2), Text: "all of it",
		}}
	fill(reflect.ValueOf(result.Output).Elem(), &n)
	result.Output.Bytes, result.Output.Retrieved, result.Output.Drafted, result.Output.ExpiredAt = nil, 0,
		false, time.Time{}
	start := storagetest.Start(storagetest.Key(1, 1), "nonce", 1, turnkeeper.EffectOnce)
	start.RunArgs = `{"edited":true}`
	fill(reflect.ValueOf(&result).Elem(), &n)
	result.Nonce, result.OutputID = "", "" // it had no start, and has an output
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{result}, Starts: []turnlog.CallStart{start}})
	view := func() operate.TurnView {
		v, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	got := view()
	same := func(what string, want, got any, ignored ...cmp.Option) {
		t.Helper()
		if diff := cmp.Diff(want, got, append(ignored, cmpopts.EquateEmpty())...); diff != "" {
			t.Errorf("%s (-written +shown):\n%s", what, diff)
		}
	}
	same("failed attempts", failed, got.Failed, cmpopts.IgnoreFields(turnlog.FailedAttempt{}, "EndedAt"))
	same("the round", []turnkeeper.Round{*answer}, got.Rounds, cmpopts.IgnoreFields(turnkeeper.Round{}, "EndedAt",
		"Calls", "Recipe"))
	same("its calls", answer.Calls, got.Rounds[0].Calls, cmpopts.IgnoreFields(turnkeeper.ToolCall{}, "State", "Starts",
		"Nonce", "StartedAt", "EndedAt",
		"Duration", "Usage", "Shown", "Preview", "OutputID", "RunArgs", "ArgsHash", "Awaited", "LateResult"))
	started, ended := got.Rounds[0].Calls[0], got.Rounds[0].Calls[1]
	same("the start", [...]any{start.Nonce, start.RunArgs, 1, turnkeeper.CallStarted},
		[...]any{started.Nonce, started.RunArgs, started.Starts, started.State})
	same("the result", [...]any{result.State, result.Shown, result.Preview, result.Duration, result.Usage,
		result.Output.ID},
		[...]any{ended.State, ended.Shown, ended.Preview, ended.Duration, ended.Usage, ended.OutputID})
	same("the output", []turnkeeper.Output{*result.Output}, got.Outputs,
		cmpopts.IgnoreFields(turnkeeper.Output{}, "Text", "CreatedAt", "RawBytes", "Description"))
	same("a second look", got, view())
}
