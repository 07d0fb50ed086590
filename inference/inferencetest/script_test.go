package inferencetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
)

func TestScriptPlaysItsStepsInOrder(t *testing.T) {
	want := inference.Response{Text: "Grüße 🌍", Calls: []inference.Call{{ID: "a", Name: "clock", Arguments: "{}"}}}
	broken := &inference.Error{Class: inference.ClassOverloaded}
	p := inferencetest.NewScript(inferencetest.Answer(want), inferencetest.Fail(broken))

	var text, arguments strings.Builder
	res, err := p.Generate(t.Context(), inference.Request{Model: "one"}, func(d inference.Delta) {
		switch d.Kind {
		case inference.DeltaText:
			text.WriteString(d.Text)
		case inference.DeltaTool:
			arguments.WriteString(d.Name + d.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, res); diff != "" {
		t.Error(diff)
	}
	if text.String() != want.Text || arguments.String() != "clock{}" {
		t.Errorf("deltas gave %q and %q", text.String(), arguments.String())
	}
	if _, err := p.Generate(t.Context(), inference.Request{Model: "two"}, nil); !errors.Is(err, broken) {
		t.Errorf("second call: %v", err)
	}
	if _, err := p.Generate(t.Context(), inference.Request{Model: "three"}, nil); inference.ClassOf(
		err) != inference.ClassInvalid {
		t.Errorf("call after the last step: %v", err)
	}
	p.Then(inferencetest.Answer(inference.Response{Text: "more"}))
	for range 2 {
		if res, err := p.Generate(t.Context(), inference.Request{}, nil); err != nil || res.Text != "more" {
			t.Errorf("call with a last step: %v, %v", res, err)
		}
	}
	var models []string
	for _, req := range p.Requests() {
		models = append(models, req.Model)
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "", ""}, models); diff != "" {
		t.Error(diff)
	}
}

func TestScriptBlocksUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("worker lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		p := inferencetest.NewScript(inferencetest.Block())
		done := make(chan error)
		go func() {
			_, err := p.Generate(ctx, inference.Request{}, nil)
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("returned early: %v", err)
		default:
		}
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
}

func TestScriptKeepsRequestsAsTheyWere(t *testing.T) {
	p := inferencetest.NewScript().Then(inferencetest.Answer(inference.Response{Text: "ok"}))
	messages := []inference.Message{{Role: inference.RoleUser, Text: "first"}}
	if _, err := p.Generate(t.Context(), inference.Request{Messages: messages}, nil); err != nil {
		t.Fatal(err)
	}
	messages[0].Text = "changed"
	if got := p.Requests()[0].Messages[0].Text; got != "first" {
		t.Errorf("recorded message became %q", got)
	}
}
