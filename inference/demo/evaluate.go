package demo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
)

// An evaluation renders a template that check has accepted, with the same result as
// text/template. Its values are strings, numbers, booleans and nil. The package does not link
// text/template, which calls methods by name and so makes the linker keep every exported method
// of every type.
type evaluation struct {
	tree      *parse.Tree
	functions map[string]function
	to        *bounded
	at        parse.Node // the position for errors
	variables []variable
}

type variable struct {
	name  string
	value any
}

// evaluate renders a template with these functions to a writer.
func evaluate(tree *parse.Tree, own map[string]function, to *bounded) error {
	e := &evaluation{tree: tree, functions: own, to: to, at: tree.Root, variables: []variable{{"$", nil}}}
	return e.walk(nil, tree.Root)
}

func (e *evaluation) walk(dot any, node parse.Node) error {
	e.at = node
	switch n := node.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			if err := e.walk(dot, child); err != nil {
				return err
			}
		}
	case *parse.TextNode:
		_, err := e.to.Write(n.Text)
		return err
	case *parse.ActionNode:
		value, err := e.pipeline(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		if value == nil {
			value = "<no value>"
		}
		_, err = e.to.Write(fmt.Append(nil, value))
		return err
	case *parse.IfNode:
		return e.branch(dot, n.BranchNode, false)
	case *parse.WithNode:
		return e.branch(dot, n.BranchNode, true)
	}
	return nil
}

func (e *evaluation) branch(dot any, n parse.BranchNode, with bool) error {
	known := len(e.variables)
	defer func() { e.variables = e.variables[:known] }()
	value, err := e.pipeline(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case truth(value) && with:
		return e.walk(value, n.List)
	case truth(value):
		return e.walk(dot, n.List)
	case n.ElseList != nil:
		return e.walk(dot, n.ElseList)
	}
	return nil
}

// pipeline returns the value of the last command. Each command receives the value of the
// previous one as its last argument.
func (e *evaluation) pipeline(dot any, pipe *parse.PipeNode) (value any, err error) {
	e.at = pipe
	var before []any
	for _, command := range pipe.Cmds {
		if value, err = e.command(dot, command, before); err != nil {
			return nil, err
		}
		before = []any{value}
	}
	for _, declared := range pipe.Decl {
		name := declared.Ident[0]
		if !pipe.IsAssign {
			e.variables = append(e.variables, variable{name, value})
		} else if v := e.variable(name); v != nil {
			v.value = value
		}
	}
	return value, nil
}

// variable returns the newest variable with a name. The parser has checked that it exists.
func (e *evaluation) variable(name string) *variable {
	for i := range slices.Backward(e.variables) {
		if e.variables[i].name == name {
			return &e.variables[i]
		}
	}
	return nil
}

func (e *evaluation) command(dot any, command *parse.CommandNode, before []any) (any, error) {
	first := command.Args[0]
	if name, ok := first.(*parse.IdentifierNode); ok {
		return e.call(dot, name, command, command.Args[1:], before)
	}
	if _, parenthesized := first.(*parse.PipeNode); !parenthesized {
		e.at = first
	}
	if len(command.Args) > 1 || len(before) > 0 {
		return nil, e.fault("can't give argument to non-function %s", first)
	}
	return e.operand(dot, first)
}

// operand returns the value of a node other than a function with arguments.
func (e *evaluation) operand(dot any, node parse.Node) (any, error) {
	e.at = node
	switch n := node.(type) {
	case *parse.PipeNode:
		return e.pipeline(dot, n)
	case *parse.IdentifierNode:
		return e.call(dot, n, n, nil, nil)
	case *parse.VariableNode:
		if v := e.variable(n.Ident[0]); v != nil {
			return v.value, nil
		}
	case *parse.DotNode:
		return dot, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return e.number(n)
	}
	return nil, e.fault("can't evaluate %s", node)
}

// number returns a float64 if the number is written with a point or an exponent, else an int.
func (e *evaluation) number(n *parse.NumberNode) (any, error) {
	hex := strings.HasPrefix(strings.ToLower(n.Text), "0x") && !strings.ContainsAny(n.Text, "pP")
	switch {
	case n.IsComplex:
		return nil, e.fault("%s is a complex number", n)
	case n.IsFloat && !hex && n.Text[0] != '\'' && strings.ContainsAny(n.Text, ".eEpP"):
		return n.Float64, nil
	case n.IsInt:
		return int(n.Int64), nil
	}
	return nil, e.fault("%s overflows int", n)
}

// call calls a function of the conversation, or an operator. before holds the argument that the
// pipeline adds to args, if any.
func (e *evaluation) call(dot any, name *parse.IdentifierNode, whole parse.Node, args []parse.Node, before []any) (any, error) {
	e.at = name
	f, own := e.functions[name.Ident]
	if !own {
		return e.operator(dot, name.Ident, whole, args, before)
	}
	given, least := len(args)+len(before), len(f.takes)
	switch {
	case f.variadic && given < least-1:
		return nil, e.fault("wrong number of args for %s: want at least %d got %d", name.Ident, least-1, given)
	case !f.variadic && given != least:
		return nil, e.fault("wrong number of args for %s: want %d got %d", name.Ident, least, given)
	}
	var values []any
	for i, arg := range args {
		value, err := e.argument(dot, arg, f.takes[min(i, least-1)])
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	for _, value := range before {
		if err := e.typed(value, f.takes[min(len(values), least-1)]); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	value, err := f.call(values)
	if err != nil {
		e.at = whole
		return nil, e.fault("error calling %s: %w", name.Ident, err)
	}
	return value, nil
}

// argument returns the value of an argument, or an error if it is not of the wanted kind.
func (e *evaluation) argument(dot any, node parse.Node, want kind) (any, error) {
	e.at = node
	switch n := node.(type) {
	case *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		if n, ok := n.(*parse.NumberNode); ok && want == wholeNumber && n.IsInt {
			return int(n.Int64), nil
		}
		if n, ok := n.(*parse.StringNode); ok && want == text {
			return n.Text, nil
		}
		return nil, e.fault("expected %s; found %s", map[kind]string{text: "string", wholeNumber: "integer"}[want], node)
	}
	value, err := e.operand(dot, node)
	if err != nil {
		return nil, err
	}
	return value, e.typed(value, want)
}

func (e *evaluation) typed(value any, want kind) error {
	switch value.(type) {
	case string:
		if want == text {
			return nil
		}
	case int:
		if want == wholeNumber {
			return nil
		}
	case nil:
		return e.fault("invalid value; expected %s", want)
	}
	return e.fault("wrong type for value; expected %s; got %T", want, value)
}

// operator evaluates and, or, not, or a comparison. The first two evaluate only as many
// arguments as they need.
func (e *evaluation) operator(dot any, name string, whole parse.Node, args []parse.Node, before []any) (any, error) {
	given := len(args) + len(before)
	switch least := map[string]int{"eq": 1, "and": 1, "or": 1, "not": 1}[name]; {
	case least == 1 && name != "not" && given < least:
		return nil, e.fault("wrong number of args for %s: want at least %d got %d", name, least, given)
	case name == "not" && given != 1:
		return nil, e.fault("wrong number of args for not: want 1 got %d", given)
	case least == 0 && given != 2: //nolint:mnd // a comparison has two sides
		return nil, e.fault("wrong number of args for %s: want 2 got %d", name, given)
	}
	var values []any
	for _, arg := range args {
		value, err := e.operand(dot, arg)
		if err != nil {
			return nil, err
		}
		if (name == "and" || name == "or") && truth(value) == (name == "or") {
			return value, nil
		}
		values = append(values, value)
	}
	values = append(values, before...)
	switch name {
	case "and", "or":
		return values[len(values)-1], nil
	case "not":
		return !truth(values[0]), nil
	}
	result, err := compared(name, values)
	if err != nil {
		e.at = whole
		return nil, e.fault("error calling %s: %w", name, err)
	}
	return result, nil
}

var (
	errNoComparison  = errors.New("missing argument for comparison")
	errNotComparable = errors.New("invalid type for comparison")
)

func incompatible(a, b any) error {
	return fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
}

// compared compares two values; for eq, it compares the first with each of the others.
func compared(name string, values []any) (bool, error) {
	if len(values) == 1 {
		return false, errNoComparison
	}
	first := values[0]
	if name == "eq" || name == "ne" {
		for _, other := range values[1:] {
			if first != nil && other != nil && fmt.Sprintf("%T", first) != fmt.Sprintf("%T", other) {
				return false, incompatible(first, other)
			}
			if first == other {
				return name == "eq", nil
			}
		}
		return name == "ne", nil
	}
	var order int
	var alike bool
	switch a := first.(type) {
	case string:
		order, alike = ordered(a, values[1])
	case int:
		order, alike = ordered(a, values[1])
	case float64:
		order, alike = ordered(a, values[1])
	default:
		return false, errNotComparable
	}
	if values[1] == nil {
		return false, errNotComparable
	}
	if !alike {
		return false, incompatible(first, values[1])
	}
	switch name {
	case "lt":
		return order < 0, nil
	case "le":
		return order <= 0, nil
	case "gt":
		return order > 0, nil
	}
	return order >= 0, nil
}

func ordered[T cmp.Ordered](a T, other any) (order int, alike bool) {
	b, ok := other.(T)
	return cmp.Compare(a, b), ok
}

// truth reports whether a value is not empty, 0, false or nil.
func truth(value any) bool {
	switch v := value.(type) {
	case bool:
		return v
	case string:
		return v != ""
	case int:
		return v != 0
	case float64:
		return v != 0
	}
	return false
}

// fault returns an error at the current node, in the format of text/template.
func (e *evaluation) fault(format string, args ...any) error {
	place, node := e.tree.ErrorContext(e.at)
	return fmt.Errorf("template: %s: executing \"\" at <%s>: %w", place, node, fmt.Errorf(format, args...))
}
