package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/internal/redact"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

const (
	canary = "canary-0123456789"
	hidden = "a " + canary + " b"
	shown  = "a " + redact.Placeholder + " b"
)

// A talker answers with prepared deltas and an answer.
type talker struct {
	deltas []inference.Delta
	answer inference.Response
	err    error
}

func (p talker) Generate(_ context.Context, _ inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if onDelta != nil {
		for _, d := range p.deltas {
			onDelta(d)
		}
	}
	return p.answer, p.err
}

// A said is the text of consecutive deltas of a block, and the names of its deltas.
type said struct {
	kind        inference.DeltaKind
	index       int
	names, text string
}

// joined returns what deltas say, as those who watch a turn put them together.
func joined(deltas []inference.Delta) (all []said) {
	for _, d := range deltas {
		if n := len(all); n == 0 || all[n-1].kind != d.Kind || all[n-1].index != d.Index {
			all = append(all, said{kind: d.Kind, index: d.Index})
		}
		last := &all[len(all)-1]
		last.names, last.text = last.names+d.Name, last.text+d.Text
	}
	return all
}

// TestSecretsInStreams cuts an answer of four blocks with secrets at every place into two and three pieces: the deltas
// say the masked text of each block, and only that.
func TestSecretsInStreams(t *testing.T) {
	masker := redact.New([]string{canary})
	blocks := []inference.Delta{ // the end of one and the beginning of the next would be a secret in one text
		{Kind: inference.DeltaText, Text: "a " + canary + canary + canary[:9]},
		{Kind: inference.DeltaThinking, Text: canary[9:] + canary[:9]},
		{Kind: inference.DeltaTool, Index: 0, Name: "call_" + canary, Text: canary[9:] + `{"key":"` +
			canary + canary[:9]},
		{Kind: inference.DeltaTool, Index: 1, Name: "clock", Text: canary[9:] + canary[:9]},
	}
	var want []said
	for _, b := range blocks {
		want = append(want, said{b.Kind, b.Index, masker.String(b.Name), masker.String(b.Text)})
	}
	for i, b := range blocks {
		for from := range len(b.Text) + 1 {
			for to := from; to <= len(b.Text); to++ {
				var deltas, got []inference.Delta
				deltas = append(deltas, blocks[:i]...)
				for n, piece := range []string{b.Text[:from], b.Text[from:to], b.Text[to:]} {
					d := inference.Delta{Kind: b.Kind, Index: b.Index, Text: piece}
					if n == 0 {
						d.Name = b.Name
					}
					deltas = append(deltas, d)
				}
				deltas = append(deltas, blocks[i+1:]...)
				p := maskedProvider{talker{deltas: deltas}, masker}
				if _, err := p.Generate(t.Context(), inference.Request{}, func(d inference.Delta) {
					got = append(got, d)
				}); err != nil {
					t.Fatal(err)
				}
				if all := joined(got); !reflect.DeepEqual(all, want) {
					t.Fatalf("block %d cut at %d and %d says\n%+v, want\n%+v", i, from, to, all, want)
				}
			}
		}
	}
	if _, err := (maskedProvider{talker{deltas: blocks}, masker}).Generate(t.Context(), inference.Request{},
		nil); err != nil {
		t.Errorf("without a watcher: %v", err)
	}
}

// TestTheEndOfACallInAStream checks that the masking stream flushes the text that it holds back of a call before it
// passes on the delta with Done.
func TestTheEndOfACallInAStream(t *testing.T) {
	piece := func(index int, text string, done bool) inference.Delta {
		return inference.Delta{Kind: inference.DeltaTool, Index: index, Text: text, Done: done}
	}
	var got []inference.Delta
	p := maskedProvider{talker{deltas: []inference.Delta{piece(0, canary[:9], false), piece(0, "", true),
		piece(1, canary[:9], false), piece(0, "", true), piece(1, canary[9:], false), piece(1, "", true)}},
		redact.New([]string{canary})}
	if _, err := p.Generate(t.Context(), inference.Request{}, func(d inference.Delta) {
		got = append(got, d)
	}); err != nil {
		t.Fatal(err)
	}
	want := []inference.Delta{piece(0, canary[:9], false), piece(0, "", true), piece(0, "", true),
		piece(1, p.masker.String(canary), false), piece(1, "", true)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// number makes each text of a value another one with the secret, and returns how many there are.
func number(v reflect.Value, n *int) {
	switch {
	case v.Kind() == reflect.String:
		*n++
		v.SetString(fmt.Sprintf("%d %s.", *n, canary))
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		*n++
		v.SetBytes(fmt.Appendf(nil, `"%d %s."`, *n, canary))
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			number(v.Index(i), n)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				number(v.Field(i), n)
			}
		}
	}
}

// TestSecretsInAnswers fills every text of an answer with a secret: it comes out in its place, with the secret masked.
func TestSecretsInAnswers(t *testing.T) {
	var answer inference.Response
	n := 0
	number(reflect.ValueOf(&answer).Elem(), &n)
	before, err := json.Marshal(answer)
	if err != nil || n < 15 {
		t.Fatalf("%d texts, %v", n, err)
	}
	failed := errors.New("it failed")
	got, err := maskedProvider{talker{answer: answer, err: failed}, redact.New([]string{canary})}.Generate(t.Context(),
		inference.Request{},
		nil)
	if !errors.Is(err, failed) {
		t.Errorf("the error is %v", err)
	}
	after, err := json.Marshal(got)
	own := map[string]string{"Provider": answer.Provider, "Doubt": answer.Doubt,
		"Cost": answer.Cost} // of the settings; one of our sentences; a number
	sent, err2 := json.Marshal(answer.Sent)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	want := strings.ReplaceAll(string(before), canary, redact.Placeholder)
	for _, text := range own {
		want = strings.Replace(want, strings.ReplaceAll(text, canary, redact.Placeholder), text, 1)
	}
	want = strings.Replace(want, strings.ReplaceAll(string(sent), canary, redact.Placeholder), string(sent), 1)
	if string(after) != want {
		t.Errorf("the answer is\n%s, want\n%s", after, want)
	}
}

// A leaky tool tells a secret in everything that it says.
type leaky struct {
	run func(call tools.Call) (tools.Result, error)
}

func (leaky) Spec() tools.Spec { return tools.Spec{Name: "leaky", Description: "Leaks."} }

func (l leaky) Run(_ context.Context, call tools.Call) (tools.Result, error) { return l.run(call) }

type leakyReconciler struct{ leaky }

func (l leakyReconciler) Reconcile(_ context.Context, call tools.Call) (tools.Result, bool, error) {
	r, err := l.run(call)
	return r, true, err
}

type leakyApprover struct {
	leaky
	policing
}

type policing struct{}

func (policing) Approve(context.Context, tools.Call) (policy.Decision, error) {
	return policy.Decision{Verdict: policy.Ask, Rule: "rule " + hidden, Reason: "reason " + hidden},
		errors.New("error " + hidden)
}

func masked(tool tools.Tool) tools.Tool {
	return maskTools([]tools.Tool{tool}, redact.New([]string{canary}))[0]
}

// A masked tool decides about its calls, and looks them up, exactly if the tool does. Otherwise a turn would ask it, or
// write before each of its reads (see durability in the contract).
func TestMaskedToolsCanDoWhatTheToolsCan(t *testing.T) {
	type both struct {
		leakyReconciler
		policing
	}
	for _, tool := range []tools.Tool{leaky{}, leakyApprover{}, leakyReconciler{}, both{}} {
		_, decides := tool.(tools.Approver)
		_, looks := tool.(tools.Reconciler)
		_, maskedDecides := masked(tool).(tools.Approver)
		_, maskedLooks := masked(tool).(tools.Reconciler)
		if decides != maskedDecides || looks != maskedLooks {
			t.Errorf("%T decides: %t, masked %t; looks up: %t, masked %t", tool, decides, maskedDecides, looks, maskedLooks)
		}
	}
}

// TestSecretsInResults checks each text that a tool gives a turn: a result in each form, an attachment's name, an
// error, progress, a question to a person, a decision.
func TestSecretsInResults(t *testing.T) {
	for name, r := range map[string]tools.Result{
		"text": {Text: hidden}, "body": {Body: strings.NewReader(hidden)}, "JSON": {Body: strings.NewReader(hidden),
			MediaType: "application/json"},
	} {
		for _, reconciled := range []bool{false, true} {
			r.Attached = []tools.Attachment{{Name: "first"}, {Name: hidden}}
			source := r
			if r.Body != nil {
				source.Body = strings.NewReader(hidden)
			}
			tool := masked(leakyReconciler{leaky{run: func(tools.Call) (tools.Result, error) { return source, nil }}})
			var got tools.Result
			var err error
			if reconciled {
				var happened bool
				if got, happened, err = tool.(tools.Reconciler).Reconcile(t.Context(), tools.Call{}); !happened {
					t.Errorf("%s: it has not happened", name)
				}
			} else {
				got, err = tool.Run(t.Context(), tools.Call{})
			}
			text := got.Text
			if got.Body != nil {
				content, _ := io.ReadAll(got.Body)
				text = string(content)
			}
			if err != nil || text != shown || len(got.Attached) != 2 || got.Attached[0].Name != "first" ||
				got.Attached[1].Name != shown {
				t.Errorf("%s, reconciled %t: %q, %+v, %v", name, reconciled, text, got.Attached, err)
			}
		}
	}
	failed := masked(leakyReconciler{leaky{run: func(tools.Call) (tools.Result, error) {
		return tools.Result{}, errors.New(hidden)
	}}})
	if _, err := failed.Run(t.Context(), tools.Call{}); err == nil || err.Error() != shown {
		t.Errorf("the error is %v", err)
	}
	if _, _, err := failed.(tools.Reconciler).Reconcile(t.Context(), tools.Call{}); err == nil || err.Error() != shown {
		t.Errorf("the error is %v", err)
	}
	if d, err := masked(leakyApprover{}).(tools.Approver).Approve(t.Context(), tools.Call{}); err == nil ||
		err.Error() != "error "+shown ||
		d != (policy.Decision{Verdict: policy.Ask, Rule: "rule " + shown, Reason: "reason " + shown}) {
		t.Errorf("it decides %+v, %v", d, err)
	}
}

// TestSecretsOnTheWay checks what a running tool tells watchers, a model and a person. What the tool itself has stays
// as it is.
func TestSecretsOnTheWay(t *testing.T) {
	var told string
	var asked tools.Sampling
	asks := tools.Sampling{System: "system " + hidden, Messages: []tools.SamplingMessage{{Text: "first"},
		{Text: hidden}}, MaxTokens: 7}
	tool := masked(leaky{run: func(call tools.Call) (tools.Result, error) {
		call.Progress("progress " + hidden)
		answer, err := call.Sample(t.Context(), asks)
		if err != nil || answer.Text != "answer" {
			t.Errorf("the model says %+v, %v", answer, err)
		}
		return tools.Result{}, &tools.InputRequest{Question: "who? " + hidden,
			Schema: json.RawMessage(`{"title":"` + hidden + `"}`),
			State:  hidden}
	}})
	_, err := tool.Run(t.Context(), tools.Call{
		Progress: func(text string) { told = text },
		Sample: func(_ context.Context, s tools.Sampling) (tools.Sampled, error) {
			asked = s
			return tools.Sampled{Text: "answer"}, nil
		},
	})
	if told != "progress "+shown {
		t.Errorf("the progress is %q", told)
	}
	want := tools.Sampling{System: "system " + shown, Messages: []tools.SamplingMessage{{Text: "first"},
		{Text: shown}}, MaxTokens: 7}
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("the model is asked %+v", asked)
	}
	if asks.Messages[1].Text != hidden {
		t.Errorf("the tool's own question has become %q", asks.Messages[1].Text)
	}
	request, ok := errors.AsType[*tools.InputRequest](err)
	if !ok || request.Question != "who? "+shown || string(request.Schema) != `{"title":"`+shown+`"}` ||
		request.State != hidden {
		t.Errorf("a person is asked %+v, %v", request, err)
	}
	if _, err := masked(leaky{run: func(call tools.Call) (tools.Result, error) {
		if call.Progress != nil || call.Sample != nil {
			t.Error("there is somebody to tell")
		}
		return tools.Result{Text: "done"}, nil
	}}).Run(t.Context(), tools.Call{}); err != nil {
		t.Error(err)
	}
}
