package inference_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
)

func TestChainGoesOnAfterEveryError(t *testing.T) {
	for _, class := range []inference.Class{
		inference.ClassAuth, inference.ClassQuota, inference.ClassNotFound, inference.ClassInvalid,
		inference.ClassContextOverflow, inference.ClassRefused, inference.ClassOverloaded,
		inference.ClassTransport, inference.ClassRateLimited, inference.ClassBadOutput,
	} {
		t.Run(string(class), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := inferencetest.NewScript().Then(fail(class))
				second := inferencetest.NewScript(inferencetest.Answer(answer))
				var announced int
				chain := inference.Chain{
					Models: []inference.Candidate{{Name: "a", Provider: first, Model: "one"},
						{Name: "b", Provider: second, Model: "two"}},
					Retry: inference.Retry{MaxAttempts: 2, OnRetry: func(attempt int, _ *inference.Error,
						_ time.Duration) {
						announced = attempt
					}},
				}
				res, err := chain.Generate(t.Context(), inference.Request{Model: "ignored"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				calls := len(first.Requests())
				if want := map[bool]int{true: 2, false: 1}[class.Transient()]; calls != want {
					t.Errorf("%d calls of the first model, want %d", calls, want)
				}
				want := answer
				want.Provider, want.Model, want.Attempts = "b", "two", calls+1
				if diff := cmp.Diff(want, res); diff != "" {
					t.Error(diff)
				}
				if first.Requests()[0].Model != "one" || second.Requests()[0].Model != "two" {
					t.Error("a model was asked by another one's name")
				}
				if announced != calls {
					t.Errorf("the move was announced after attempt %d of %d", announced, calls)
				}
			})
		})
	}
}

func TestChainWhoseModelsAllFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := inference.Chain{Models: []inference.Candidate{
			{Name: "a", Provider: inferencetest.NewScript(
				inferencetest.Fail(&inference.Error{Class: inference.ClassAuth, Detail: "wrong key"})), Model: "one"},
			{Name: "b", Provider: inferencetest.NewScript(
				inferencetest.Fail(&inference.Error{Class: inference.ClassNotFound, Detail: "no such model"})),
				Model: "two"},
		}}
		_, err := chain.Generate(t.Context(), inference.Request{}, nil)
		failure, ok := errors.AsType[*inference.Error](err)
		if !ok || failure.Class != inference.ClassNotFound || failure.Attempts != 2 || failure.Provider != "b" {
			t.Fatalf("got %+v", failure)
		}
		for _, part := range []string{"no such model", "wrong key", "a/"} {
			if !strings.Contains(failure.Detail, part) {
				t.Errorf("detail %q says nothing of %q", failure.Detail, part)
			}
		}
	})
}

func TestChainSharesTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		start := time.Now()
		var begun []time.Duration
		hang := inferencetest.Func(func(ctx context.Context, _ inference.Request,
			_ func(inference.Delta)) (inference.Response, error) {
			begun = append(begun, time.Since(start))
			<-ctx.Done()
			return inference.Response{}, context.Cause(ctx)
		})
		models := []inference.Candidate{
			{Name: "a", Provider: inferencetest.NewScript(hang), Model: "one"},
			{Name: "b", Provider: inferencetest.NewScript(fail(inference.ClassAuth)), Model: "two"},
			{Name: "c", Provider: inferencetest.NewScript(hang), Model: "three"},
			{Name: "d", Provider: inferencetest.NewScript(inferencetest.Answer(answer)), Model: "four"},
		}
		res, err := inference.Chain{Models: models}.Generate(ctx, inference.Request{}, nil)
		if err != nil || res.Provider != "d" || res.Attempts != 4 {
			t.Fatalf("got %+v, %v", res, err)
		}
		want := []time.Duration{0, 22500 * time.Millisecond} // a quarter of 90 s, then half of the rest
		if diff := cmp.Diff(want, begun); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(start); took != 22500*time.Millisecond+33750*time.Millisecond {
			t.Errorf("took %s", took)
		}
	})
}

func TestChainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("cancelled by the operator")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		second := inferencetest.NewScript(inferencetest.Answer(answer))
		chain := inference.Chain{Models: []inference.Candidate{
			{Name: "a", Provider: inferencetest.NewScript(inferencetest.Block())}, {Name: "b", Provider: second},
		}}
		if _, err := chain.Generate(ctx, inference.Request{},
			nil); err != cause { //nolint:errorlint // the cause itself is promised
			t.Errorf("got %v", err)
		}
		if len(second.Requests()) != 0 {
			t.Error("the next model was asked after the end")
		}
	})
}

func TestChainOfNothing(t *testing.T) {
	if _, err := (inference.Chain{}).Generate(t.Context(), inference.Request{}, nil); inference.ClassOf(
		err) != inference.ClassInvalid {
		t.Errorf("got %v", err)
	}
}
