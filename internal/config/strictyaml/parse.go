package strictyaml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a document. Time and stack of the YAML library grow quadratically with some of them.
const (
	MaxBytes = 64 << 10
	MaxLines = 2000
	maxDepth = 32
)

// A SyntaxError says why a document cannot be parsed.
type SyntaxError struct {
	Line int
	Text string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Parse parses one document with LF line ends. Lines are numbered from firstLine. An empty document is
// nil. The error is a *SyntaxError about the first fault.
func Parse(source string, firstLine int) (node *Node, err error) {
	p := &converter{offset: firstLine - 1}
	defer func() {
		if recover() != nil { // the library panics on some inputs
			node, err = nil, p.fault(1, "invalid YAML")
		}
	}()
	if len(source) > MaxBytes || strings.Count(source, "\n") > MaxLines {
		return nil, p.fault(1, "the settings are larger than %d KiB or %d lines", MaxBytes>>10, MaxLines)
	}
	tokens := lexer.Tokenize(source)
	if err := p.checkDepth(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, p.libraryFault(err)
	}
	return p.document(file)
}

// converter converts the library's syntax tree into Nodes.
type converter struct {
	offset int
}

func (p *converter) fault(line int, format string, args ...any) *SyntaxError {
	return &SyntaxError{Line: line + p.offset, Text: fmt.Sprintf(format, args...)}
}

func (p *converter) libraryFault(err error) error {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil || e.GetToken().Position == nil {
		return p.fault(1, "invalid YAML")
	}
	hint := ""
	if strings.Contains(e.GetMessage(), "not allowed in this context") {
		hint = "; put text that has ': ' or begins with * & ! % @ in quotes"
	}
	return p.fault(e.GetToken().Position.Line, "invalid YAML: %s%s", e.GetMessage(), hint)
}

// checkDepth refuses documents that are nested too deeply for the parser's stack.
func (p *converter) checkDepth(tokens token.Tokens) error {
	flow, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			dashes++
		}
		if flow > maxDepth || dashes > maxDepth {
			return p.fault(line, "the settings are nested too deeply")
		}
	}
	return nil
}

func (p *converter) document(file *ast.File) (*Node, error) {
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) == 0 {
		return nil, nil
	}
	node, err := p.node(bodies[0], 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) > 1 {
		return nil, p.fault(lineOf(bodies[len(bodies)-1]), "only one YAML document is allowed")
	}
	return node, nil
}

func (p *converter) node(from ast.Node, depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, p.fault(lineOf(from), "the settings are nested too deeply")
	}
	node := &Node{Line: lineOf(from) + p.offset}
	switch v := from.(type) {
	case *ast.StringNode:
		node.Kind, node.Value = Text, v.Value
	case *ast.LiteralNode:
		node.Kind, node.Value = Text, v.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		node.Kind, node.Value = Number, v.GetToken().Value
	case *ast.BoolNode:
		node.Kind, node.Value = Bool, strings.ToLower(v.GetToken().Value)
	case *ast.NullNode:
		node.Kind = Null
	case *ast.SequenceNode:
		node.Kind = List
		return node, p.items(node, v, depth)
	case *ast.MappingNode:
		node.Kind = Map
		return node, p.fields(node, v.Values, depth)
	case *ast.MappingValueNode:
		node.Kind = Map
		return node, p.fields(node, []*ast.MappingValueNode{v}, depth)
	default:
		return nil,
			p.fault(lineOf(from),
				"YAML anchors, aliases, tags and directives are not supported: put text that begins with * & ! or %% in quotes")
	}
	return node, nil
}

func (p *converter) items(to *Node, from *ast.SequenceNode, depth int) error {
	for _, value := range from.Values {
		item, err := p.node(value, depth+1)
		if err != nil {
			return err
		}
		to.Items = append(to.Items, item)
	}
	return nil
}

func (p *converter) fields(to *Node, from []*ast.MappingValueNode, depth int) error {
	for _, pair := range from {
		key, ok := pair.Key.(*ast.StringNode)
		if !ok {
			return p.fault(lineOf(pair.Key), "a key must be plain text")
		}
		value, err := p.node(pair.Value, depth+1)
		if err != nil {
			return err
		}
		to.Fields = append(to.Fields, Field{Key: key.Value, Line: lineOf(key) + p.offset, Value: value})
	}
	return nil
}

func lineOf(node ast.Node) int {
	if t := node.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}
