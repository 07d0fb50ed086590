package inference

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Markup is a format in which models write tool calls. A server turns it into calls if it knows the format of its
// model; else the markup is part of the text.
type Markup struct {
	Name   string // of the format
	VLLM   string // parser of vLLM, by name
	SGLang string // parser of SGLang, by name
}

// Advice says which settings make servers parse the markup.
func (m Markup) Advice() string {
	return fmt.Sprintf(
		"vLLM: --enable-auto-tool-choice --tool-call-parser %s; SGLang: --tool-call-parser %s; llama.cpp: --jinja; "+
			"Ollama: a model whose template has tools", m.VLLM, m.SGLang)
}

// Unparsed returns the error of an answer with a tool call that is a part of its text.
func (m Markup) Unparsed() *Error {
	return &Error{
		Class: ClassBadOutput, Code: CodeMarkup, NoRetry: true,
		Detail: "the model wrote a tool call as text (" + m.Name + " format), which its server did not parse. " +
			m.Advice(),
	}
}

// CodeMarkup is the Code of an answer whose text has tool markup in place of calls. The same request is not sent again:
// the model must be asked in other words, or the server must be set up.
const CodeMarkup = "tool_markup"

// A format is how a Markup is found in a text.
type format struct {
	Markup
	open    []string // it begins with one of these
	call    *regexp.Regexp
	special bool // it begins with a token of the model's own, which no prose has: it may follow text on a line
}

// Names of tools in regular expressions.
const (
	aName    = `([\w.:/-]+)`
	jsonName = `[^<]*?"(?:name|function|tool)"\s*:\s*"([^"]+)"`
)

// formats holds the known formats. Parsers are named as in vLLM 0.12 and SGLang 0.5.
var formats = []format{
	{Markup{"Qwen XML", "qwen3_xml", "qwen3_coder"}, []string{"<tool_call>", "<function="},
		regexp.MustCompile(`^(?:<tool_call>\s*)?<function=` + aName + `>\s*(?:<parameter|</function>|$)`), false},
	{Markup{"Hermes", "hermes", "qwen25"}, []string{"<tool_call>"},
		regexp.MustCompile(`^<tool_call>\s*[\[{]` + jsonName), false},
	{Markup{"GLM", "glm45", "glm45"}, []string{"<tool_call>"},
		regexp.MustCompile(`^<tool_call>\s*(?:<name>)?` + aName +
			`\s*(?:</name>\s*)?(?:<arg_key>|<arguments>|</tool_call>|\{)`), false},
	{Markup{"Llama", "llama3_json", "llama3"}, []string{"<function=", "<|python_tag|>"},
		regexp.MustCompile(`^(?:<function=` + aName + `>\s*\{|<\|python_tag\|>\s*(?:\{` + jsonName + `|` + aName +
			`\())`), false},
	{Markup{"Mistral", "mistral", "mistral"}, []string{"[TOOL_CALLS]"},
		regexp.MustCompile(`^\[TOOL_CALLS\]\s*(?:[\[{]` + jsonName + `|` + aName + `\s*(?:\[(?:ARGS|CALL_ID)\]|\{))`),
		true},
	{Markup{"DeepSeek", "deepseek_v3 (deepseek_v31 for V3.1)", "deepseekv3 (deepseekv31 for V3.1)"},
		[]string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<|tool▁calls▁begin|>", "<|tool▁call▁begin|>"},
		regexp.MustCompile(
			`^(?:<[｜|]tool▁calls▁begin[｜|]>\s*)?<[｜|]tool▁call▁begin[｜|]>\s*(?:function\s*<[｜|]tool▁sep[｜|]>\s*)?` +
				aName), true},
	{Markup{"DeepSeek DSML", "deepseek_v32", "deepseekv32"}, []string{"<｜DSML｜", "<|DSML|"},
		regexp.MustCompile(`^<[｜|]DSML[｜|][^>]*>?\s*(?:<[｜|]DSML[｜|])?[^>]*name="([^"]+)"`), true},
	{Markup{"Kimi", "kimi_k2", "kimi_k2"}, []string{"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
		regexp.MustCompile(
			`^<\|tool_calls?_(?:section_)?begin\|>\s*(?:<\|tool_call_begin\|>\s*)?(?:functions\.)?([\w-]+)`), true},
	{Markup{"Phi or Granite", "phi4_mini_json or granite", "the one of its model"}, []string{"<|tool_call|>"},
		regexp.MustCompile(`^<\|tool_call\|>\s*[\[{]` + jsonName), true},
	{Markup{"Gemma", "gemma4 or functiongemma", "gemma4"}, []string{"<|tool_call>", "<start_function_call>"},
		regexp.MustCompile(`^(?:<\|tool_call>|<start_function_call>)\s*call:` + aName + `\s*\{`), true},
	{Markup{"gpt-oss", "openai", "gpt-oss"}, []string{"<|channel|>", "<|start|>"},
		regexp.MustCompile(`^(?:<\|start\|>assistant\s*)?(?:<\|channel\|>\s*\w*)?\s*to=functions\.` + aName), true},
	{Markup{"MiniMax", "minimax_m2", "minimax-m2"}, []string{"<minimax:tool_call>", "<tool_calls>"},
		regexp.MustCompile(`^<(?:minimax:tool_call|tool_calls)>\s*(?:<invoke name="([^"]+)"|[\[{]` + jsonName + `)`),
		false},
	{Markup{"Seed", "seed_oss", "the one of its model"}, []string{"<seed:tool_call>"},
		regexp.MustCompile(`^<seed:tool_call>\s*<function=` + aName + `>`), false},
	{Markup{"XML", "the one of its model, such as minimax_m2", "the one of its model"}, []string{"<function_calls>",
		"<invoke ", "<tool_use>"},
		regexp.MustCompile(
			`^(?:<function_calls>\s*<invoke name="([^"]+)"|<invoke name="([^"]+)"|<tool_use>\s*(?:<name>` + aName +
				`|\{` + jsonName + `))`), false},
	{Markup{"InternLM", "internlm", "the one of its model"}, []string{"<|action_start|>"},
		regexp.MustCompile(`^<\|action_start\|>\s*<\|plugin\|>\s*\{` + jsonName), true},
}

// Formats without a sign of their own: only a whole text in one of them, which calls a declared tool, counts.
var (
	bareJSON = Markup{"JSON", "llama3_json (hermes for Qwen)", "llama3 (qwen25 for Qwen)"}
	pythonic = Markup{"Python", "pythonic or llama4_pythonic", "pythonic"}

	aPythonCall = regexp.MustCompile(`(?s)^\[\s*([\w.]+)\(.*\)\s*\]$`)
)

// FindMarkup returns the text before the first tool call that is a part of a text, and the format of the call. ok is
// false if there is none. A call is markup that names a tool, not quoted and not in a code block. If other text stands
// before it, it must name a declared tool, begin its line, unless it begins with a token of the model's own, and
// nothing but markup may follow; cut says that the text may lack its end.
func FindMarkup(text string, tools []ToolDefinition, cut bool) (before string, m Markup, ok bool) {
	declared := func(name string) bool {
		return slices.ContainsFunc(tools, func(t ToolDefinition) bool { return t.Name == name })
	}
	if m, ok := wholeCall(strings.TrimSpace(text), declared); ok {
		return "", m, true
	}
	line, done := lineState{start: true}, 0
	for at := range len(text) {
		if text[at] != '<' && text[at] != '[' {
			continue
		}
		line.add(text[done:at])
		done = at
		if line.fenced || isQuote(line.last) {
			continue
		}
		before = text[:at]
		for _, f := range formats {
			name, found := f.match(text[at:], line.start)
			if found && (Blank(before) || declared(name) && (cut || endsAsMarkup(text))) {
				return strings.TrimSpace(before), f.Markup, true
			}
		}
	}
	return "", Markup{}, false
}

// match returns the name of the tool that markup at the beginning of a text calls.
func (f format) match(text string, lineStart bool) (name string, ok bool) {
	if !lineStart && !f.special || !slices.ContainsFunc(f.open, func(open string) bool {
		return strings.HasPrefix(text, open)
	}) {
		return "", false
	}
	found := f.call.FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	return strings.Join(found[1:], ""), true // one group has matched
}

// wholeCall returns the format of a text that is a call and nothing else, without any sign of markup.
func wholeCall(text string, declared func(string) bool) (Markup, bool) {
	if found := aPythonCall.FindStringSubmatch(text); found != nil && declared(found[1]) {
		return pythonic, true
	}
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return Markup{}, false
	}
	var calls []map[string]json.RawMessage
	if json.Unmarshal([]byte("["+strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")+"]"), &calls) != nil ||
		len(calls) == 0 {
		return Markup{}, false
	}
	return bareJSON, !slices.ContainsFunc(calls, func(call map[string]json.RawMessage) bool {
		return !isCall(call, declared)
	})
}

// isCall reports whether a JSON object names a declared tool and its arguments.
func isCall(call map[string]json.RawMessage, declared func(string) bool) bool {
	var name string
	if json.Unmarshal(call["name"], &name) != nil || !declared(name) {
		return false
	}
	for _, member := range []string{"arguments", "parameters"} {
		if strings.HasPrefix(string(call[member]), "{") {
			return true
		}
	}
	return false
}

// endsAsMarkup reports whether a text ends as markup does, and not as a sentence.
func endsAsMarkup(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && strings.ContainsRune(">}])", rune(text[len(text)-1]))
}

// beginsMarkup reports whether a text begins like markup.
func beginsMarkup(text string, lineStart bool) bool {
	return slices.ContainsFunc(formats, func(f format) bool {
		return (lineStart || f.special) && slices.ContainsFunc(f.open, func(open string) bool {
			return strings.HasPrefix(text, open)
		})
	})
}

// mayBeMarkup reports whether a text may be the first part of a sign of markup.
func mayBeMarkup(text string) bool {
	return slices.ContainsFunc(formats, func(f format) bool {
		return slices.ContainsFunc(f.open, func(open string) bool { return strings.HasPrefix(open, text) })
	})
}
