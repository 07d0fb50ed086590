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
	"text/template/parse"
	"unicode/utf8"
)

// maxRendered is how much one answer of a script may hold, and any value within
// it, in bytes.
const maxRendered = 256 << 10

// A pattern is a text of a script: a template over a conversation, without
// loops and without templates of its own, so that it ends and its result is
// bounded.
type pattern struct {
	source string
	tree   *parse.Tree // nil: the source holds no action
}

// operators are the functions of text/template that scripts may use. refused are the
// rest, which make texts of any size.
var (
	operators = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge"}
	refused   = []string{"call", "html", "index", "js", "len", "print", "printf", "println", "slice", "urlquery"}
)

// A function is what a template may call: the kinds of its arguments, of which a
// variadic function takes the last any number of times, and the call.
type function struct {
	takes    []kind
	variadic bool
	call     func(args []any) (any, error)
}

// A kind is a type of arguments.
type kind string

const (
	text        kind = "string"
	wholeNumber kind = "int"
)

// functions are what a template asks of a conversation, and what it does with
// texts. None fails for what a conversation holds, but by size.
func functions(c conversation) map[string]function {
	none := func(f func() string) function {
		return function{call: func([]any) (any, error) { return f(), nil }}
	}
	one := func(f func(string) string) function {
		return function{takes: []kind{text}, call: func(args []any) (any, error) { return f(args[0].(string)), nil }}
	}
	two := func(f func(a, b string) (any, error)) function {
		return function{takes: []kind{text, text}, call: func(args []any) (any, error) { return f(args[0].(string), args[1].(string)) }}
	}
	return map[string]function{
		"message": none(func() string { return c.message }),
		"notice":  none(func() string { return c.notice }),
		"count":   {takes: []kind{text}, call: func(args []any) (any, error) { return len(c.of(args[0].(string))), nil }},
		"result": {takes: []kind{text, wholeNumber}, variadic: true, call: func(args []any) (any, error) {
			var nth []int
			for _, n := range args[1:] {
				nth = append(nth, n.(int))
			}
			return c.result(args[0].(string), nth...)
		}},
		"results":  one(func(tool string) string { return strings.Join(c.of(tool), "\n\n") }),
		"field":    two(func(path, text string) (any, error) { return field(path, text), nil }),
		"match":    two(func(expression, text string) (any, error) { return match(expression, text) }),
		"contains": two(func(part, text string) (any, error) { return strings.Contains(text, part), nil }),
		"lines":    two(func(part, text string) (any, error) { return lines(part, text), nil }),
		"first":    {takes: []kind{wholeNumber, text}, call: func(args []any) (any, error) { return first(args[0].(int), args[1].(string)) }},
		"oneline":  one(oneLine),
		"trim":     one(strings.TrimSpace),
		"lower":    one(strings.ToLower),
		"json":     {takes: []kind{text}, call: func(args []any) (any, error) { return quoted(args[0].(string)) }},
	}
}

// of are the results of a tool since the message, in the order of the calls.
func (c conversation) of(tool string) (texts []string) {
	for _, r := range c.results {
		if r.name == tool {
			texts = append(texts, r.text)
		}
	}
	return texts
}

// result is the newest result of a tool, or the nth, counted from 1. Empty:
// there is none.
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

// field is the value at a path such as items.0.name of a JSON text: a string as
// it is, anything else as JSON. Empty: there is none, or the text is no JSON.
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

// match is the first group of an expression's first match, or the whole match
// where it has no groups. Empty: it does not match. The error does not repeat
// the expression, which may come from a message.
func match(expression, text string) (string, error) {
	compiled, err := regexp.Compile(expression)
	if wrong, ok := errors.AsType[*syntax.Error](err); ok {
		return "", fmt.Errorf("the expression cannot be read: %s", wrong.Code)
	}
	if err != nil {
		return "", errors.New("the expression cannot be read")
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

// lines are the lines of a text that hold a part, whatever its case. Of an
// empty part there are none.
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

// quoted is a text as JSON writes it. It may grow by that, again and again.
func quoted(text string) (string, error) {
	if text = encode(text); len(text) > maxRendered {
		return "", errTooLong
	}
	return text, nil
}

var errTooLong = fmt.Errorf("it grows beyond %d KiB", maxRendered>>10)

// compile reads a template and plays it once with nothing said, so that what is
// wrong with it is found before it is needed.
func compile(source string) (pattern, error) {
	if !strings.Contains(source, "{{") {
		return pattern{source: source}, nil
	}
	known := map[string]any{}
	for _, name := range slices.Concat(operators, refused, slices.Collect(maps.Keys(functions(conversation{})))) {
		known[name] = true
	}
	trees, err := parse.Parse("", source, "", "", known)
	if err != nil {
		return pattern{}, templateFault(err)
	}
	if len(trees) > 1 {
		return pattern{}, errors.New("define and block are not for scripts")
	}
	t := trees[""]
	if err := check(t.Root); err != nil {
		return pattern{}, err
	}
	p := pattern{source: source, tree: t}
	left := maxRendered
	_, err = p.render(conversation{}, &left)
	return p, err
}

// check refuses what a script's template may not hold.
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
	return fmt.Errorf("%s is not for scripts: they have no loops and no templates within templates", firstWords(node.String()))
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

// checkCommand also reads the expressions that are written out: a trial may not
// come by them.
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

// firstWords is the beginning of a template, for messages.
func firstWords(source string) string {
	const enough = 40
	return shorten(oneLine(source), enough)
}

// render plays a template. left is what all that is rendered together may still
// hold, in bytes.
func (p pattern) render(c conversation, left *int) (string, error) {
	var b strings.Builder
	to := &bounded{to: &b, left: left}
	if p.tree == nil {
		_, err := to.Write([]byte(p.source))
		return b.String(), err
	}
	if err := evaluate(p.tree, functions(c), to); err != nil {
		return "", templateFault(err)
	}
	return b.String(), nil
}

// holds says that a template renders to something other than nothing, false and 0.
func (p pattern) holds(c conversation) (bool, error) {
	left := maxRendered
	text, err := p.render(c, &left)
	text = strings.TrimSpace(text)
	return text != "" && text != "false" && text != "0", err
}

// bounded writes no more than what is left.
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

// templateFault is an error of a template without its own words for the
// place, but for the line of a template that has several.
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
