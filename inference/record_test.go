package inference_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference"
	"turnkeeper/internal/golden"
)

// callsAsText is a call of the tool clock in each format in which models write calls.
var callsAsText = []string{
	"<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>",
	"<tool_call>[{\"function\":\"clock\"}]</tool_call>", "<tool_call>\n<function=clock>\n</function></tool_call>",
	"<function=clock><parameter=a>1</parameter></function>",
	"<tool_call>clock\n<arg_key>a</arg_key></tool_call>",
	"<tool_call><name>clock</name><arguments>{}</arguments></tool_call>", "<function=clock>{}</function>",
	"<|python_tag|>{\"name\":\"clock\"}", "<|python_tag|>clock(a=1)",
	"[TOOL_CALLS][{\"name\":\"clock\"}]", "[TOOL_CALLS]clock[ARGS]{}",
	"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>clock>", "<|tool▁call▁begin|>clock<|tool▁sep|>",
	"<｜DSML｜invoke name=\"clock\">",
	"<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_call_end|>",
	"<|tool_call|>[{\"name\":\"clock\"}]", "<|tool_call>call:clock{}", "<start_function_call>call:clock{}",
	"<|channel|>commentary to=functions.clock<|call|>",
	"<|start|>assistant<|channel|> to=functions.clock<|call|>", "<minimax:tool_call><invoke name=\"clock\"></invoke>",
	"<tool_calls>[{\"name\":\"clock\"}]", "<seed:tool_call><function=clock></function>",
	"<function_calls><invoke name=\"clock\"></invoke>",
	"<invoke name=\"clock\"></invoke>", "<tool_use><name>clock</name></tool_use>",
	"<tool_use>{\"tool\":\"clock\"}</tool_use>", "<|action_start|><|plugin|>{\"name\":\"clock\"}",
	"{\"name\":\"clock\",\"arguments\":{}}", "[clock(a=1)]", "<tool_call>clock", "<function=clock>", "[TOOL_CALLS]",
}

// TestWhereCallsStandInTexts compares with testdata which texts with markup are tool calls, and the text before each
// call. The markup stands alone, names another tool, or is next to other text.
func TestWhereCallsStandInTexts(t *testing.T) {
	t.Parallel()
	tools := []inference.ToolDefinition{{Name: "look"}, {Name: "clock"}}
	var lines []string
	for _, call := range callsAsText {
		lines = append(lines, fmt.Sprintf("%q", call))
		for _, form := range []string{"%s", " \n%s\n", "Well. %s", " Well.\n %s", "Well.\n%s so", "`%s`", "```\n%s",
			"~~~\n%s\n~~~\nyes\n%[1]s", "```\n```\n%s", "cut: Well.\n%s and", "other: %s", "other: Well.\n%s"} {
			what, text, _ := strings.Cut(form, ": ")
			if text == "" {
				what, text = "", form
			}
			text = fmt.Sprintf(text, call)
			if what == "other" {
				text = strings.ReplaceAll(text, "clock", "other")
			}
			if before, m, ok := inference.FindMarkup(text, tools, what == "cut"); ok {
				lines = append(lines, fmt.Sprintf("  %q: %s after %q", form, m.Name, before))
			}
		}
	}
	golden.File(t, "testdata/markup.txt", strings.Join(lines, "\n")+"\n")
}

// TestWhatClassesAndReasonsMean compares what callers decide by classes of errors and finish reasons with testdata.
func TestWhatClassesAndReasonsMean(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, class := range []inference.Class{
		inference.ClassRateLimited, inference.ClassOverloaded, inference.ClassTransport, inference.ClassBadOutput,
		inference.ClassContextOverflow, inference.ClassAuth, inference.ClassQuota,
		inference.ClassNotFound, inference.ClassInvalid, inference.ClassRefused, "",
	} {
		lines = append(lines, fmt.Sprintf("%q: transient %t, of the service %t", class, class.Transient(),
			class.OfService()))
		for _, e := range []inference.Error{
			{}, {Provider: "p"}, {Model: "m"}, {Provider: "p", Model: "m", Status: 299, Detail: "d"},
			{Status: 300, NoRetry: true}, {Unsent: true, RetryAfter: 2 * time.Second}, {Idle: true},
			{RetryAfter: 2*time.Second + 1},
		} {
			e.Class = class
			lines = append(lines, fmt.Sprintf("  %s; transient %t, unworked %t, lasting %t", e.Error(), e.Transient(),
				e.Unworked(), e.Lasting()))
		}
	}
	for _, reason := range []string{
		"stop", "tool_calls", "function_call", "tool_call", "tool_use", "end_turn", "eos", "eos_token", "stop_sequence",
		"complete", "completed", "end", "done", "finished", "insufficient_system_resource", "network_error",
		"abort", "aborted",
		"cancelled", "timeout", "malformed_function_call", "unexpected_tool_call", "pause_turn", "other", "sensitive",
		"safety", "recitation", "blocklist", "prohibited_content", "spii", "refusal", "length", "max_tokens",
		"max_output_tokens", "max_completion_tokens", "max_new_tokens", "max_length", "model_length", "token_limit",
		"context_length", "truncated", "incomplete", "model_context_window_exceeded", "content_filter",
		"content_filtered",
		" MAX-TOKENS ", "End Turn", "", "eek",
	} {
		lines = append(lines, fmt.Sprintf("%q: %d, a limit %t", reason, inference.FinishOf(reason),
			inference.ReachedLimit(reason)))
	}
	for _, text := range []string{"", " \n\t", "\x00", "\ufeff\u200b", "\u00a0\u2028", "x", " é", "."} {
		lines = append(lines, fmt.Sprintf("%q is blank: %t", text, inference.Blank(text)))
	}
	sent := inference.SentAs("form", []byte("body"))
	lines = append(lines, fmt.Sprintf("%+v", sent))
	golden.File(t, "testdata/meanings.txt", strings.Join(lines, "\n")+"\n")
}

// TestWhatIsPassedOnOfATextWithReasoning compares each part that is passed on of texts with reasoning, whole and by
// characters, with testdata: of models of which something is known or nothing, with tools and without, of answers that
// are cut or not taken.
func TestWhatIsPassedOnOfATextWithReasoning(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, text := range []string{
		"plain", " \n<think>a</think>\n b", "a</think>b", "a `</think>` b</think>c", "x <think>a</think> y",
		"x <think>a", "<think>a", "x [THINK]a[/THINK]y◁/think▷z", "<thin", "x <", "```\n<think>a</think>",
		"<tool_call>clock", "x\n<tool_call>", "x <invoke", "",
		"<think>" + strings.Repeat("é", 30) + "</think>" + strings.Repeat("é", 30),
	} {
		for how := range 16 {
			tools, cut, taken, apart := how&1 > 0, how&2 > 0, how&4 == 0, how&8 > 0
			var parts []string
			pass := func(kind inference.DeltaKind, part string) {
				parts = append(parts, fmt.Sprintf("%s %q", kind[:2], part))
			}
			habit := &inference.Habit{}
			if apart {
				habit = nil
			}
			s := inference.NewSpeech(habit, tools, pass)
			if apart && tools {
				s.Reasoned()
			}
			for _, part := range strings.SplitAfter(text, "") {
				s.Add(part)
			}
			s.Close(cut)
			early := len(parts)
			if cut && tools {
				s.Shorten(s.Text()[:len(s.Text())/2])
			}
			s.End(taken)
			shown := strings.NewReplacer(`", "`, "").Replace(strings.Join(parts, "; "))
			lines = append(lines, fmt.Sprintf("%.40q tools %t, cut %t, taken %t, known %t: %d early, %q of %.300s",
				text, tools, cut, taken, apart, early, s.Text(), shown))
		}
	}
	golden.File(t, "testdata/speech.txt", strings.Join(lines, "\n")+"\n")
}
