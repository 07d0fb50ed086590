package agentturn_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"turnkeeper"
	askings "turnkeeper/asks"
	"turnkeeper/policy"
	"turnkeeper/tools/builtin"
)

// TestAQuestionStaysOpen continues a turn, because the result of a call has arrived, whose question is not answered
// yet.
func TestAQuestionStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("remote", `ask_person {"question":"Which?"}`), says("Thanks.")).with(far("remote",
			turnkeeper.EffectOnce), builtin.NewAskPerson())
		b.waits()
		b.store.arrive(keyOf(1), turnkeeper.CallSucceeded, "forty-two")
		b.waits()
		if all := b.store.asked(); len(all) != 1 || all[0].Closed() {
			t.Errorf("asks %+v", all)
		}
		b.answer(askings.Answer{Decision: askings.Answered, Answer: `"this"`})
		b.succeeds("Thanks.")
	})
}

// TestAQuestionIsNoCallToApprove checks that a rule about all tools does not ask whether the model may ask, and what a
// question without options takes.
func TestAQuestionIsNoCallToApprove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks(`ask_person {"question":"Which?"}`), says("Thanks.")).with(builtin.NewAskPerson())
		b.def.Approve = map[string]string{policy.AllTools: policy.Always}
		b.waits()
		if all := b.store.asked(); len(all) != 1 || all[0].Kind != askings.KindQuestion ||
			all[0].Schema != `{"type":"string"}` {
			t.Errorf("asks %+v", all)
		}
		b.answer(askings.Answer{Decision: askings.Answered, Answer: `"this"`})
		b.succeeds("Thanks.")
	})
}

// TestEachCallIsAskedAboutOnce asks about two calls together, and then about the one between them, whose handle is
// known by then.
func TestEachCallIsAskedAboutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := payText().needsApproval()
		b := newBench(t, asks("page"), asks(`pay {"text":"x"}`, withHandle, `pay {"text":"y"}`), says("Paid.")).with(
			read("page"), pay)
		b.bounds.OutputHandles = true
		b.waits()
		b.answer(yes)
		b.waits()
		b.answer(yes)
		b.waits()
		b.answer(yes)
		b.succeeds("Paid.")
		if got := pay.arguments(); !slices.Equal(got, []string{`{"text":"x"}`, `{"text":"page ran"}`,
			`{"text":"y"}`}) || len(b.store.asked()) != 3 {
			t.Errorf("pay ran with %q, asks %+v", got, b.store.asked())
		}
	})
}

// TestWhatIsAskedAboutTogether checks which later calls of an answer are asked about with the first one.
func TestWhatIsAskedAboutTogether(t *testing.T) {
	const first = `pay {"text":"x"}`
	for name, c := range map[string]struct {
		calls []string
		asked int
	}{
		"another call":             {[]string{first, `pay {"text":"y"}`}, 2},
		"the same call":            {[]string{first, first}, 1},
		"a call with a handle":     {[]string{first, withHandle}, 1}, // the person sees the text in its place
		"a call that pages":        {[]string{first, "get_tool_output"}, 1},
		"a question":               {[]string{first, `ask_person {"question":"Which?"}`}, 1},
		"a call that pages, alone": {[]string{"get_tool_output"}, 0},
		"a call that is denied":    {[]string{first, `pay {"text":1}`}, 1},
		"a question, alone":        {[]string{`ask_person {"question":"Which?"}`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("page"), asks(c.calls...), says("Done.")).with(read("page"), payText(),
					reader("get_tool_output"), builtin.NewAskPerson())
				b.def.Approve = map[string]string{policy.AllTools: policy.Always, "page": policy.Never}
				b.bounds.OutputHandles = true
				b.run(t.Context())
				all := b.store.asked()
				if len(all) != c.asked {
					t.Errorf("asks %+v, want %d", all, c.asked)
				}
				for _, ask := range all {
					question := ask.Kind == askings.KindQuestion
					if question != (ask.Tool == turnkeeper.ToolAskPerson) {
						t.Errorf("the ask is %+v", ask)
					}
				}
			})
		})
	}
}
