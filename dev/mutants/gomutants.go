package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// rewriteGo returns the source with a switch around each condition of the named functions
// (all functions if none is named), and the mutants that the switches make. first is the id of the
// first mutant. Conditions in lines of skip are left alone: the compiler has refused their mutants.
func rewriteGo(path string, source []byte, functions []string, first int, skip map[int]bool) ([]byte, []Mutant, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	r := &goRewriter{path: path, source: source, file: files.File(file.Pos()), next: first, skip: skip,
		seen: map[ast.Node]bool{}}
	missing := slices.Clone(functions)
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		name := functionName(f)
		if len(functions) > 0 && !slices.Contains(functions, name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(s string) bool { return s == name })
		r.function = name
		r.walk(f.Body, boolResults(f.Type))
	}
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("%s has no function %s", path, strings.Join(missing, ", "))
	}
	return r.apply(), r.mutants, nil
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if index, ok := receiver.(*ast.IndexExpr); ok {
		receiver = index.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// boolResults reports which results of a function are of type bool.
func boolResults(f *ast.FuncType) (are []bool) {
	if f.Results == nil {
		return nil
	}
	for _, field := range f.Results.List {
		name, ok := field.Type.(*ast.Ident)
		for range max(1, len(field.Names)) {
			are = append(are, ok && name.Name == "bool")
		}
	}
	return are
}

// An insertion is text to insert at an offset of the source.
type insertion struct {
	at, order int
	text      string
	remove    int // bytes of the source that it replaces
}

type goRewriter struct {
	path       string
	source     []byte
	file       *token.File
	function   string
	next       int
	skip       map[int]bool
	seen       map[ast.Node]bool
	insertions []insertion
	mutants    []Mutant
}

func (r *goRewriter) offset(p token.Pos) int { return r.file.Offset(p) }
func (r *goRewriter) text(n ast.Node) string {
	return string(r.source[r.offset(n.Pos()):r.offset(n.End())])
}

func (r *goRewriter) mutant(n ast.Node, after string) int {
	r.next++
	r.mutants = append(r.mutants, Mutant{
		ID: r.next - 1, File: r.path, Line: r.file.Line(n.Pos()), Function: r.function,
		Before: oneLine(r.text(n)), After: oneLine(after),
	})
	return r.next - 1
}

// walk finds the conditions in a function's body. results says which of its results are bool.
func (r *goRewriter) walk(body ast.Node, results []bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			r.walk(n.Body, boolResults(n.Type))
			return false
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.IfStmt:
			if !plumbing(n) {
				r.root(n.Cond, true)
			} else {
				r.seen[n.Cond] = true
			}
		case *ast.ForStmt:
			if n.Cond != nil { // a loop that always goes on says nothing
				r.root(n.Cond, false)
			}
		case *ast.SwitchStmt:
			r.cases(n)
		case *ast.ReturnStmt:
			for i, result := range n.Results {
				if len(results) == len(n.Results) && results[i] && !truth(result) {
					r.root(result, true)
				}
			}
		case *ast.BinaryExpr:
			if logical(n) || compares(n) {
				r.root(n, true)
			}
		}
		return true
	})
}

// truth reports whether an expression is true or false.
func truth(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && (name.Name == "true" || name.Name == "false")
}

// plumbing reports whether a statement only passes an error on.
func plumbing(n *ast.IfStmt) bool {
	c, ok := n.Cond.(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ && c.Op != token.EQL {
		return false
	}
	left, ok := c.X.(*ast.Ident)
	right, isName := c.Y.(*ast.Ident)
	if !ok || !isName || left.Name != "err" || right.Name != "nil" || len(n.Body.List) != 1 {
		return false
	}
	back, ok := n.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(back.Results) == 0 {
		return false
	}
	uses := false
	ast.Inspect(back.Results[len(back.Results)-1], func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		uses = uses || ok && name.Name == "err"
		return true
	})
	return uses
}

// cases makes mutants of a switch's cases.
func (r *goRewriter) cases(n *ast.SwitchStmt) {
	tag := ""
	if n.Tag != nil {
		if tag = r.text(n.Tag); !pure(n.Tag) {
			return
		}
	}
	rewritten := false
	for _, s := range n.Body.List {
		for _, e := range s.(*ast.CaseClause).List {
			if tag == "" {
				r.root(e, true)
				continue
			}
			rewritten = true
			compared := tag + " == (" + r.text(e) + ")"
			id := r.mutant(e, "never this case")
			r.mutants[len(r.mutants)-1].Before = oneLine(tag + " == " + r.text(e))
			r.seen[e] = true
			r.insert(e.Pos(), id, fmt.Sprintf("mutant_(0, %d, 0, func() bool { return %s }, nil)", id, compared),
				len(r.text(e)))
		}
	}
	if rewritten {
		r.insert(n.Tag.Pos(), 0, "", len(tag))
	}
}

func logical(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && (b.Op == token.LAND || b.Op == token.LOR)
}

func compares(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, b.Op)
}

// root makes the mutants of a whole condition: each of its parts dropped, and the whole forced.
func (r *goRewriter) root(e ast.Expr, always bool) {
	if r.seen[e] || r.skip[r.file.Line(e.Pos())] {
		return
	}
	if b, ok := inner(e).(*ast.BinaryExpr); ok && logical(b) {
		r.chain(e, b)
		if b.Op == token.LAND {
			r.force(e, false, true, false)
		} else {
			r.force(e, always, false, false)
		}
		return
	}
	r.leaf(e, always, true)
}

func inner(e ast.Expr) ast.Expr {
	for {
		p, ok := e.(*ast.ParenExpr)
		if !ok {
			return e
		}
		e = p.X
	}
}

// chain drops each operand of a chain of && or ||: it is forced to what changes nothing.
func (r *goRewriter) chain(outer ast.Expr, b *ast.BinaryExpr) {
	r.seen[outer], r.seen[b] = true, true
	for _, operand := range []ast.Expr{b.X, b.Y} {
		if next, ok := operand.(*ast.BinaryExpr); ok && next.Op == b.Op {
			r.chain(operand, next)
			continue
		}
		r.leaf(operand, b.Op == token.LAND, b.Op == token.LOR)
	}
}

func (r *goRewriter) leaf(e ast.Expr, always, never bool) {
	if not, ok := inner(e).(*ast.UnaryExpr); ok && not.Op == token.NOT {
		r.seen[e] = true
		if b, ok := inner(not.X).(*ast.BinaryExpr); ok && logical(b) {
			r.chain(not.X, b)
		}
	}
	if b, ok := inner(e).(*ast.BinaryExpr); ok && logical(b) {
		r.chain(e, b)
	}
	r.force(e, always, never, true)
}

var shifted = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ: token.GTR}

// force puts a switch around a condition.
func (r *goRewriter) force(e ast.Expr, always, never, boundary bool) {
	r.seen[e] = true
	var ids [3]int
	if always {
		ids[0] = r.mutant(e, "true")
	}
	if never {
		ids[1] = r.mutant(e, "false")
	}
	other := "nil"
	if b, ok := inner(e).(*ast.BinaryExpr); ok && boundary {
		r.seen[b] = true
		if op, ok := shifted[b.Op]; ok {
			text := r.text(b.X) + " " + op.String() + " " + r.text(b.Y)
			ids[2] = r.mutant(e, text)
			other = "func() bool { return " + text + " }"
		}
	}
	order := r.next
	r.insert(e.Pos(), -order, fmt.Sprintf("mutant_(%d, %d, %d, func() bool { return ", ids[0], ids[1], ids[2]), 0)
	r.insert(e.End(), order, " }, "+other+")", 0)
}

// insert adds text before or after a condition. Texts of nested conditions stay in order: the
// outer condition, which is forced later, begins earlier and ends later.
func (r *goRewriter) insert(at token.Pos, order int, text string, remove int) {
	r.insertions = append(r.insertions, insertion{r.offset(at), order, text, remove})
}

func (r *goRewriter) apply() []byte {
	slices.SortStableFunc(r.insertions, func(a, b insertion) int {
		if a.at != b.at {
			return a.at - b.at
		}
		// What ends here comes before what begins here.
		if (a.order > 0) != (b.order > 0) && a.remove == 0 && b.remove == 0 {
			return cmp.Compare(b.order, a.order)
		}
		return cmp.Compare(a.order, b.order)
	})
	var out []byte
	last := 0
	for _, i := range r.insertions {
		out = append(out, r.source[last:i.at]...)
		out = append(out, i.text...)
		last = i.at + i.remove
	}
	return append(out, r.source[last:]...)
}

// helper returns the source of a file for each rewritten package: what the switches call.
func helper(pkg string, offset, last int) string {
	return fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	chosen_, _ = strconv.Atoi(os.Getenv(%q))
	reach_     = os.Getenv(%q)
	reached_   [%d]atomic.Bool
)

func mutant_(always, never, other int, is, instead func() bool) bool {
	if reach_ != "" {
		reach_mutants_(always, never, other)
	}
	if chosen_ == 0 {
		return is()
	}
	switch chosen_ {
	case always:
		return true
	case never:
		return false
	case other:
		return instead()
	}
	return is()
}

func reach_mutants_(ids ...int) {
	for _, id := range ids {
		if id == 0 || reached_[id-%d].Swap(true) {
			continue
		}
		f, err := os.OpenFile(reach_, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			panic(err)
		}
		_, _ = f.WriteString(strconv.Itoa(id) + "\n")
		_ = f.Close()
	}
}
`, pkg, chosenVariable, reachVariable, last-offset+1, offset)
}
