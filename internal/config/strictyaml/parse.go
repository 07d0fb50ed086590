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

// Limits of a document. The YAML library's time and stack grow with the square
// of some of these.
const (
	MaxBytes = 64 << 10
	MaxLines = 2000
	maxDepth = 32
)

// A SyntaxError is a document that cannot be read as settings.
type SyntaxError struct {
	Line int
	Text string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Parse reads one document, LF line ends, whose first line counts as number
// firstLine. An empty document is nil. The error is a *SyntaxError: the
// first fault found.
func Parse(source string, firstLine int) (node *Node, err error) {
	p := &converter{offset: firstLine - 1}
	defer func() {
		if recover() != nil { // the library is not proof against every input
			node, err = nil, p.fault(1, "this cannot be read as YAML")
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

// converter turns the library's tree into Nodes.
type converter struct {
	offset int
}

func (p *converter) fault(line int, format string, args ...any) *SyntaxError {
	return &SyntaxError{Line: line + p.offset, Text: fmt.Sprintf(format, args...)}
}

func (p *converter) libraryFault(err error) error {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil || e.GetToken().Position == nil {
		return p.fault(1, "this cannot be read as YAML")
	}
	hint := ""
	if strings.Contains(e.GetMessage(), "not allowed in this context") {
		hint = "; put a text that holds ': ' or begins with * & ! % @ in quotes"
	}
	return p.fault(e.GetToken().Position.Line, "this cannot be read as YAML: %s%s", e.GetMessage(), hint)
}

// checkDepth refuses what would take the parser too deep.
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
		return nil, p.fault(lineOf(from), "YAML anchors, aliases, tags and directives are not supported: put a text that begins with * & ! or %% in quotes")
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
