package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"
)

// maxRendered is the maximum size of an answer of a script, and of any value in it, in bytes.
const maxRendered = 256 << 10

// A pattern is a text of a script: a template over a conversation. Loops and nested templates
// are not allowed, which bounds its time and its result.
type pattern struct {
	source string
	parsed *template.Template // nil: the source has no action
}

// operators are the functions of text/template that scripts may use. The others can make texts of
// any size.
var operators = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge"}

// functions returns the functions of templates. For the texts of a conversation they fail only
// if a result is too large.
func functions(c conversation) template.FuncMap {
	return template.FuncMap{
		"message":  func() string { return c.message },
		"notice":   func() string { return c.notice },
		"count":    func(tool string) int { return len(c.of(tool)) },
		"result":   c.result,
		"results":  func(tool string) string { return strings.Join(c.of(tool), "\n\n") },
		"field":    field,
		"match":    match,
		"contains": func(part, text string) bool { return strings.Contains(text, part) },
		"lines":    lines,
		"first":    first,
		"oneline":  oneLine,
		"trim":     strings.TrimSpace,
		"lower":    strings.ToLower,
		"json":     quoted,
	}
}

// of returns the results of a tool since the message, in the order of the calls.
func (c conversation) of(tool string) (texts []string) {
	for _, r := range c.results {
		if r.name == tool {
			texts = append(texts, r.text)
		}
	}
	return texts
}

// result returns the newest result of a tool, or the nth, counted from 1. It is empty if there
// is none.
func (c conversation) result(tool string, nth ...int) (string, error) {
	texts := c.of(tool)
	switch {
	case len(nth) > 1:
		return "", errors.New("result takes a tool and at most one number")
	case len(nth) == 1 && nth[0] < 1:
		return "", fmt.Errorf("result %q %d: results are counted from 1", tool, nth[0])
	case len(nth) == 1 && nth[0] <= len(texts):
		return texts[nth[0]-1], nil
	case len(nth) == 1 || len(texts) == 0:
		return "", nil
	}
	return texts[len(texts)-1], nil
}

// field returns the value at a path such as items.0.name of a JSON text: a string unchanged,
// other values as JSON. It is empty if there is none, or if the text is not JSON.
func field(path, text string) string {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return ""
	}
	for key := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				return ""
			}
			value = v[i]
		default:
			return ""
		}
	}
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return encode(value)
}

// match returns the first group of an expression's first match, or the whole match if there
// are no groups. It is empty if there is no match. Errors do not quote the expression, which
// may come from a message.
func match(expression, text string) (string, error) {
	compiled, err := regexp.Compile(expression)
	if wrong, ok := errors.AsType[*syntax.Error](err); ok {
		return "", fmt.Errorf("invalid expression: %s", wrong.Code)
	}
	if err != nil {
		return "", errors.New("invalid expression")
	}
	groups := compiled.FindStringSubmatch(text)
	switch {
	case groups == nil:
		return "", nil
	case len(groups) > 1:
		return groups[1], nil
	}
	return groups[0], nil
}

// lines returns the lines of a text that contain a part, ignoring case. For an empty part it
// returns none.
func lines(part, text string) string {
	var found []string
	for line := range strings.Lines(text) {
		if part != "" && strings.Contains(strings.ToLower(line), strings.ToLower(part)) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "\n")
}

func first(n int, text string) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("first %d: it must be 1 or more characters", n)
	}
	return shorten(text, n), nil
}

// quoted returns a text as JSON. Repeated quoting makes it longer each time.
func quoted(text string) (string, error) {
	if text = encode(text); len(text) > maxRendered {
		return "", errTooLong
	}
	return text, nil
}

var errTooLong = fmt.Errorf("it grows beyond %d KiB", maxRendered>>10)

// compile parses a template and renders it once with an empty conversation, which finds most
// faults before it is used.
func compile(source string) (pattern, error) {
	if !strings.Contains(source, "{{") {
		return pattern{source: source}, nil
	}
	t, err := template.New("").Funcs(functions(conversation{})).Parse(source)
	if err != nil {
		return pattern{}, templateFault(err)
	}
	if len(t.Templates()) > 1 {
		return pattern{}, errors.New("define and block are not allowed in scripts")
	}
	if err := check(t.Root); err != nil {
		return pattern{}, err
	}
	p := pattern{source: source, parsed: t}
	left := maxRendered
	_, err = p.render(conversation{}, &left)
	return p, err
}

// check returns an error if a template contains something that is not allowed.
func check(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		return checkAll(n.Nodes)
	case *parse.ActionNode:
		return check(n.Pipe)
	case *parse.IfNode:
		return checkBranch(n.BranchNode)
	case *parse.WithNode:
		return checkBranch(n.BranchNode)
	case *parse.PipeNode:
		return checkAll(n.Cmds)
	case *parse.CommandNode:
		return checkCommand(n)
	case *parse.IdentifierNode:
		return checkFunction(n.Ident)
	case *parse.VariableNode:
		if len(n.Ident) > 1 {
			return fmt.Errorf("%s: values have no fields; use field for those of a JSON text", n)
		}
		return nil
	case *parse.TextNode, *parse.CommentNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode, *parse.DotNode:
		return nil
	case *parse.FieldNode, *parse.ChainNode:
		return fmt.Errorf("%s: values have no fields; use field for those of a JSON text", node)
	}
	return fmt.Errorf("%s is not allowed in scripts: they have no loops and no nested templates",
		firstWords(node.String()))
}

func checkAll[N parse.Node](nodes []N) error {
	for _, n := range nodes {
		if err := check(n); err != nil {
			return err
		}
	}
	return nil
}

func checkBranch(n parse.BranchNode) error {
	err := errors.Join(check(n.Pipe), check(n.List))
	if err == nil && n.ElseList != nil {
		err = check(n.ElseList)
	}
	return err
}

// checkCommand also checks literal expressions, because rendering once may not evaluate them.
func checkCommand(n *parse.CommandNode) error {
	if err := checkAll(n.Args); err != nil {
		return err
	}
	if len(n.Args) < 2 || n.Args[0].String() != "match" {
		return nil
	}
	if literal, ok := n.Args[1].(*parse.StringNode); ok {
		if _, err := match(literal.Text, ""); err != nil {
			return fmt.Errorf("match %s: %w", firstWords(literal.Quoted), err)
		}
	}
	return nil
}

func checkFunction(name string) error {
	own := functions(conversation{})
	if _, ok := own[name]; ok || slices.Contains(operators, name) {
		return nil
	}
	return fmt.Errorf("there is no function %q; there are %s", name,
		strings.Join(append(slices.Sorted(maps.Keys(own)), operators...), ", "))
}

// firstWords returns the beginning of a template, for messages.
func firstWords(source string) string {
	const enough = 40
	return shorten(oneLine(source), enough)
}

// render renders a template. left is the number of bytes that the answer may still grow by.
func (p pattern) render(c conversation, left *int) (string, error) {
	var b strings.Builder
	to := &bounded{to: &b, left: left}
	if p.parsed == nil {
		_, err := to.Write([]byte(p.source))
		return b.String(), err
	}
	t, err := p.parsed.Clone()
	if err == nil {
		err = t.Funcs(functions(c)).Execute(to, nil)
	}
	if err != nil {
		return "", templateFault(err)
	}
	return b.String(), nil
}

// isTrue reports whether a template renders to anything but an empty text, false or 0.
func (p pattern) isTrue(c conversation) (bool, error) {
	left := maxRendered
	text, err := p.render(c, &left)
	text = strings.TrimSpace(text)
	return text != "" && text != "false" && text != "0", err
}

// bounded fails after left bytes.
type bounded struct {
	to   *strings.Builder
	left *int
}

func (w *bounded) Write(b []byte) (int, error) {
	if *w.left -= len(b); *w.left < 0 {
		return 0, errTooLong
	}
	return w.to.Write(b)
}

var templatePlace = regexp.MustCompile(`^template: :(\d+)(?::\d+)?: `)

// templateFault returns an error of text/template without its description of the place, except
// for the line in a template of several lines.
func templateFault(err error) error {
	if errors.Is(err, errTooLong) {
		return errTooLong
	}
	text := err.Error()
	if place := templatePlace.FindStringSubmatch(text); place != nil {
		text = text[len(place[0]):]
		if place[1] != "1" {
			text += " (line " + place[1] + " of the text)"
		}
	}
	text = strings.TrimPrefix(text, `executing "" `)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "�")
	}
	const enough = 300
	return errors.New(shorten(oneLine(text), enough))
}
