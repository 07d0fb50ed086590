package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// The operators of a sample in Go: faults that a careless maintainer makes, and that forcing a condition does not. The
// weight is how often a sample draws an operator, compared with the others.
var goOperators = map[string]int{
	"drop a statement": 22,
	"zero a value":     20,
	"another variable": 14,
	"swap arguments":   12,
	"swap statements":  8,
	"move a limit":     10,
	"a wrong unit":     3,
	"now for a time":   4,
	"drop a copy":      3,
	"drop a context":   3,
	"drop a lock":      2,
	"drop a defer":     2,
}

// A spot is a place in a Go file where an operator applies. Its edits have $ for the id of the mutant.
type spot struct {
	operator      string
	pkg, path     string // the folder of the package and the file, both from the root
	function      string
	line          int
	before, after string
	edits         []edit
}

// An edit replaces the bytes of a file from start to end.
type edit struct {
	start, end int
	text       string
}

// A finder collects the spots of a file.
type finder struct {
	pkg      *packages.Package
	file     *token.File
	syntax   *ast.File
	source   []byte
	path     string
	imports  map[string]string // the name of each imported package, by path
	function string
	spots    []spot
}

// spotsOf returns all spots of a file, in the order of the source.
func spotsOf(pkg *packages.Package, syntax *ast.File, path string, source []byte) []spot {
	f := &finder{pkg: pkg, file: pkg.Fset.File(syntax.Pos()), syntax: syntax, source: source, path: path,
		imports: map[string]string{}}
	for _, i := range syntax.Imports {
		name := strings.Trim(i.Path.Value, `"`)
		if imported := pkg.Imports[name]; imported != nil &&
			(i.Name == nil || i.Name.Name != "_" && i.Name.Name != ".") {
			f.imports[name] = imported.Name
			if i.Name != nil {
				f.imports[name] = i.Name.Name
			}
		}
	}
	for _, declaration := range syntax.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.function = functionName(d)
				f.walk(d.Body)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				for _, s := range d.Specs {
					f.function = s.(*ast.ValueSpec).Names[0].Name
					f.walk(s)
				}
			}
		}
	}
	return f.spots
}

func (f *finder) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.BlockStmt:
			f.statements(n.List)
		case *ast.CaseClause:
			f.statements(n.Body)
		case *ast.CommClause:
			f.statements(n.Body)
		case *ast.CallExpr:
			return f.call(n)
		case *ast.CompositeLit:
			f.literal(n)
		case *ast.AssignStmt:
			f.assignment(n)
		case *ast.ReturnStmt:
			f.returned(n)
		case *ast.BinaryExpr:
			if f.pkg.TypesInfo.Types[n].Value != nil {
				f.plus(n)
				return false
			}
			f.binary(n)
		case *ast.IndexExpr:
			if _, isMap := under[*types.Map](f.typeOf(n.X)); isMap {
				f.value(n.Index)
			}
		case *ast.SliceExpr:
			f.slice(n)
		}
		return true
	})
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.file.Offset(n.Pos()):f.file.Offset(n.End())])
}

func (f *finder) typeOf(e ast.Expr) types.Type { return f.pkg.TypesInfo.TypeOf(e) }

func under[T types.Type](t types.Type) (T, bool) {
	if t == nil {
		var none T
		return none, false
	}
	u, ok := t.Underlying().(T)
	return u, ok
}

// add records a spot. The texts of edits may use $ for the id.
func (f *finder) add(operator string, at ast.Node, before, after string, edits ...edit) {
	f.spots = append(f.spots, spot{operator: operator, path: f.path, function: f.function, line: f.file.Line(at.Pos()),
		before: oneLine(before),
		after:  oneLine(after), edits: edits})
}

func (f *finder) replace(n ast.Node, text string) edit {
	return edit{f.file.Offset(n.Pos()), f.file.Offset(n.End()), text}
}

// guard makes a statement run only without the mutant.
func (f *finder) guard(n ast.Stmt) edit { return f.replace(n, "if !chosen_.Is($) { "+f.text(n)+" }") }

// statements makes the spots of a list of statements: each dropped, and neighbours swapped.
func (f *finder) statements(list []ast.Stmt) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.DeferStmt:
			if !isLock(s.Call) {
				f.add("drop a defer", s, f.text(s), "", f.guard(s))
			}
		case *ast.ExprStmt:
			f.dropCall(s, list[i+1:])
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !f.blank(s) {
				f.add("drop a statement", s, f.text(s), "", f.guard(s))
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
			f.add("drop a statement", s, f.text(s), "", f.guard(s))
		}
		if i+1 < len(list) && f.movable(s) && f.movable(list[i+1]) && !f.commute(s, list[i+1]) {
			a, b := f.text(s), f.text(list[i+1])
			both := edit{f.file.Offset(s.Pos()), f.file.Offset(list[i+1].End()), "if chosen_.Is($) {\n" + b + "\n" + a +
				"\n} else {\n" + a + "\n" + b + "\n}"}
			f.add("swap statements", s, a+"; "+b, b+"; "+a, both)
		}
	}
}

func (f *finder) blank(s *ast.AssignStmt) bool {
	for _, e := range s.Lhs {
		if name, ok := e.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}

// dropCall makes the spot of a call that stands alone. A lock is dropped together with its unlock.
func (f *finder) dropCall(s *ast.ExprStmt, rest []ast.Stmt) {
	call, ok := s.X.(*ast.CallExpr)
	if !ok || f.debugLog(call) {
		return
	}
	method, locked := lockCall(call)
	if method == "" {
		f.add("drop a statement", s, f.text(s), "", f.guard(s))
		return
	}
	if !strings.HasSuffix(method, "Lock") || strings.HasSuffix(method, "Unlock") {
		return
	}
	for _, next := range rest {
		var unlock *ast.CallExpr
		switch next := next.(type) {
		case *ast.DeferStmt:
			unlock = next.Call
		case *ast.ExprStmt:
			unlock, _ = next.X.(*ast.CallExpr)
		}
		if unlock == nil {
			continue
		}
		if name, x := lockCall(unlock); strings.HasSuffix(name, "Unlock") && f.text(x) == f.text(locked) {
			f.add("drop a lock", s, f.text(s), "", f.guard(s), f.guard(next))
			return
		}
	}
}

// lockCall returns the method of a mutex that a call calls, and the mutex.
func lockCall(call *ast.CallExpr) (method string, locked ast.Expr) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if ok && slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, selector.Sel.Name) && len(call.Args) == 0 {
		return selector.Sel.Name, selector.X
	}
	return "", nil
}

func isLock(call *ast.CallExpr) bool {
	method, _ := lockCall(call)
	return method != ""
}

// movable reports whether a statement may be executed earlier or later: it defines no variable.
func (f *finder) movable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && !f.debugLog(call) && !isLock(call)
	case *ast.DeferStmt:
		return !isLock(s.Call)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IfStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		return true
	}
	return false
}

// commute reports whether the order of two statements certainly does not matter: assignments of which none uses what
// the other one sets, and which call nothing but builtins.
func (f *finder) commute(a, b ast.Stmt) bool {
	first, ok := a.(*ast.AssignStmt)
	second, also := b.(*ast.AssignStmt)
	if !ok || !also || !f.calm(first) || !f.calm(second) {
		return false
	}
	uses := func(values, set []ast.Expr) bool {
		return slices.ContainsFunc(set, func(s ast.Expr) bool {
			return slices.ContainsFunc(values, func(v ast.Expr) bool { return f.uses(v, f.text(container(s))) })
		})
	}
	return !uses(first.Rhs, second.Lhs) && !uses(second.Rhs, first.Lhs) && !uses(first.Lhs, second.Lhs) &&
		!uses(second.Lhs, first.Lhs)
}

// container returns the variable or field that holds an element.
func container(e ast.Expr) ast.Expr {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return e
		}
	}
}

// uses reports whether an expression has a variable or field, a part of it, or what it is a part of.
func (f *finder) uses(e ast.Expr, path string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		x, ok := n.(ast.Expr)
		if !ok || !pure(x) {
			return true
		}
		used := f.text(x)
		found = found || used == path || strings.HasPrefix(used, path+".") || strings.HasPrefix(path, used+".")
		return false
	})
	return found
}

// calm reports whether a node calls nothing but builtins and receives nothing, so that only the variables it sets tell
// that it was executed.
func (f *finder) calm(n ast.Node) bool {
	calm := true
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			t := f.pkg.TypesInfo.Types[n.Fun]
			calm = calm && (t.IsType() || t.IsBuiltin())
		case *ast.UnaryExpr:
			calm = calm && n.Op != token.ARROW
		}
		return true
	})
	return calm
}

// debugLog reports whether a call writes a log line of level debug or info: nobody promises those.
func (f *finder) debugLog(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Debug", "DebugContext", "Info", "InfoContext"}, selector.Sel.Name)
}

func (f *finder) logs(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Warn", "WarnContext", "Error", "ErrorContext", "LogAttrs", "Log"},
		selector.Sel.Name) && len(call.Args) > 0
}

var commutative = []string{"max", "min", "errors.Join", "cmp.Or"}

// call makes the spots of a call's arguments, and reports whether to look into it.
func (f *finder) call(call *ast.CallExpr) bool {
	if f.debugLog(call) || f.logs(call) {
		return false
	}
	if t := f.pkg.TypesInfo.Types[call.Fun]; t.IsType() { // a conversion
		return true
	}
	name := f.text(call.Fun)
	if slices.Contains([]string{"slices.Clone", "maps.Clone", "bytes.Clone"}, name) && pure(call.Args[0]) {
		f.add("drop a copy", call, f.text(call), f.text(call.Args[0]),
			f.replace(call, "chosen_.Either($, "+f.text(call)+", "+f.text(call.Args[0])+")"))
	}
	if slices.Contains([]string{"make", "new", "panic", "len", "cap", "delete", "close", "clear"}, name) {
		return true
	}
	for i, argument := range call.Args {
		if i == len(call.Args)-1 && call.Ellipsis != token.NoPos {
			continue
		}
		f.value(argument)
		if i > 0 && !slices.Contains(commutative, name) {
			f.swap(call.Args[i-1], argument)
		}
	}
	return true
}

// swap makes the spot of two values of one type that stand side by side.
func (f *finder) swap(a, b ast.Expr) {
	if !pure(a) || !pure(b) || f.text(a) == f.text(b) || !f.sameType(a, b) || isText(a) != isText(b) {
		return
	}
	x, y := f.text(a), f.text(b)
	f.add("swap arguments", a, x+", "+y, y+", "+x, f.replace(a, "chosen_.Either($, "+x+", "+y+")"),
		f.replace(b, "chosen_.Either($, "+y+", "+x+")"))
}

// isText reports whether an expression is a text: nobody swaps a key with its value.
func isText(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Kind == token.STRING
}

func (f *finder) sameType(a, b ast.Expr) bool {
	x, y := f.typeOf(a), f.typeOf(b)
	return x != nil && y != nil && types.Identical(x, y) && !isUntypedNil(x)
}

func isUntypedNil(t types.Type) bool {
	b, ok := t.(*types.Basic)
	return ok && b.Kind() == types.UntypedNil
}

// literal makes the spots of a composite literal's values.
func (f *finder) literal(l *ast.CompositeLit) {
	var last ast.Expr
	for _, e := range l.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			last = nil
			continue
		}
		f.value(pair.Value)
		if _, isStruct := under[*types.Struct](f.typeOf(l)); isStruct && last != nil {
			f.swap(last, pair.Value)
		}
		last = pair.Value
	}
}

func (f *finder) assignment(s *ast.AssignStmt) {
	if len(s.Lhs) != len(s.Rhs) || s.Tok != token.ASSIGN && s.Tok != token.DEFINE {
		return
	}
	for _, e := range s.Rhs {
		f.value(e)
	}
}

func (f *finder) returned(s *ast.ReturnStmt) {
	for i, e := range s.Results {
		f.value(e)
		if i > 0 {
			f.swap(s.Results[i-1], e)
		}
	}
}

// binary makes the spots of a comparison's or sum's operands, and of its limit.
func (f *finder) binary(b *ast.BinaryExpr) {
	if b.Op == token.LAND || b.Op == token.LOR {
		return
	}
	for _, e := range []ast.Expr{b.X, b.Y} {
		if b.Op != token.SHL && b.Op != token.SHR {
			f.other(e)
			f.plus(e)
		}
	}
	toggled, ok := shifted[b.Op]
	basic, isBasic := under[*types.Basic](f.typeOf(b.X))
	if ok && isBasic && basic.Info()&types.IsNumeric != 0 && f.repeatable(b.X) && f.repeatable(b.Y) {
		x, y := f.text(b.X), f.text(b.Y)
		f.add("move a limit", b, f.text(b), x+" "+toggled.String()+" "+y,
			f.replace(b, "(("+f.text(b)+") != (chosen_.Is($) && ("+x+") == ("+y+")))"))
	}
}

// repeatable reports whether an expression may be evaluated twice: it calls nothing but len.
func (f *finder) repeatable(e ast.Expr) bool {
	repeatable := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			t := f.pkg.TypesInfo.Types[n.Fun]
			repeatable = repeatable && (f.text(n.Fun) == "len" || t.IsType())
		case *ast.UnaryExpr:
			repeatable = repeatable && n.Op != token.ARROW
		}
		return true
	})
	return repeatable
}

// slice makes the spots of a slice expression: its limits, and the capacity that makes append copy.
func (f *finder) slice(s *ast.SliceExpr) {
	if s.Slice3 && pure(s.X) && s.High != nil {
		f.add("drop a copy", s, f.text(s), "without the capacity",
			f.replace(s.Max, "chosen_.Either($, "+f.text(s.Max)+", cap("+f.text(s.X)+"))"))
	}
	for _, e := range []ast.Expr{s.Low, s.High} {
		if e != nil {
			f.plus(e)
		}
	}
}

// value makes the spots of a value that is passed on: replaced by its zero, by another variable, by the process's time.
func (f *finder) value(e ast.Expr) {
	t := f.typeOf(e)
	if t == nil || isUntypedNil(t) || f.pkg.TypesInfo.Types[e].IsType() {
		return
	}
	if _, isTuple := t.(*types.Tuple); isTuple {
		return
	}
	switch named(t) {
	case "context.Context":
		if pure(e) {
			f.add("drop a context", e, f.text(e), "without its end", f.replace(e, "chosen_.Endless("+f.text(e)+", $)"))
		}
		return
	case "error":
		return
	case "time.Time":
		if pure(e) {
			f.add("now for a time", e, f.text(e), "time.Now()", f.replace(e, "chosen_.Now($, "+f.text(e)+")"))
		}
	}
	f.zero(e, t)
	f.other(e)
	f.plus(e)
}

func named(t types.Type) string { return types.TypeString(t, nil) }

func (f *finder) zero(e ast.Expr, t types.Type) {
	switch e := inner(e).(type) {
	case *ast.FuncLit, *ast.CompositeLit:
		return
	case *ast.Ident:
		if e.Name == "nil" || e.Name == "false" || e.Name == "iota" {
			return
		}
	}
	argument := ""
	if v := f.pkg.TypesInfo.Types[e].Value; v != nil {
		if isZero(v) {
			return
		}
		name, ok := f.typeName(t)
		if !ok {
			return
		}
		argument = "[" + name + "]"
	}
	f.add("zero a value", e, f.text(e), "zero of "+types.TypeString(t, types.RelativeTo(f.pkg.Types)),
		f.replace(e, "chosen_.Zero"+argument+"($, "+f.text(e)+")"))
}

func isZero(v constant.Value) bool {
	switch v.Kind() {
	case constant.Bool:
		return !constant.BoolVal(v)
	case constant.String:
		return constant.StringVal(v) == ""
	default:
		return constant.Sign(v) == 0
	}
}

// typeName returns the name of a type as the file writes it. ok is false for types without a name that the file can
// use.
func (f *finder) typeName(t types.Type) (name string, ok bool) {
	switch t := t.(type) {
	case *types.Basic:
		return t.Name(), t.Info()&types.IsUntyped == 0
	case *types.Named:
		in := t.Obj().Pkg()
		if in == nil || t.TypeArgs().Len() > 0 {
			return t.Obj().Name(), t.TypeArgs().Len() == 0
		}
		if in == f.pkg.Types {
			return t.Obj().Name(), t.Obj().Parent() == in.Scope()
		}
		imported, ok := f.imports[in.Path()]
		return imported + "." + t.Obj().Name(), ok
	}
	return "", false
}

// plus moves a whole number by one.
func (f *finder) plus(e ast.Expr) {
	v, t := f.pkg.TypesInfo.Types[e].Value, f.typeOf(e)
	basic, ok := under[*types.Basic](t)
	if v == nil || !ok || basic.Info()&types.IsInteger == 0 || v.Kind() != constant.Int {
		return
	}
	if named(t) == "time.Duration" {
		if !isZero(v) {
			f.add("a wrong unit", e, f.text(e), "1000 * "+f.text(e),
				f.replace(e, "chosen_.Either($, "+f.text(e)+", 1000*("+f.text(e)+"))"))
		}
		return
	}
	name, ok := f.typeName(t)
	if !ok {
		return
	}
	f.add("move a limit", e, f.text(e), f.text(e)+" + 1", f.replace(e, "chosen_.Plus["+name+"]($, "+f.text(e)+")"))
}

// other replaces a variable by another one of its type: the nearest that is declared before it, or for a field the next
// field.
func (f *finder) other(e ast.Expr) {
	var instead string
	switch e := inner(e).(type) {
	case *ast.Ident:
		instead = f.nearest(e)
	case *ast.SelectorExpr:
		instead = f.sibling(e)
	}
	if instead != "" {
		f.add("another variable", e, f.text(e), instead, f.replace(e, "chosen_.Either($, "+f.text(e)+", "+instead+")"))
	}
}

func (f *finder) nearest(name *ast.Ident) string {
	variable, ok := f.pkg.TypesInfo.Uses[name].(*types.Var)
	if !ok || variable.IsField() || variable.Parent() == f.pkg.Types.Scope() || named(variable.Type()) == "error" {
		return ""
	}
	var best *types.Var
	for scope := f.pkg.Types.Scope().Innermost(name.Pos()); scope != nil &&
		scope != f.pkg.Types.Scope(); scope = scope.Parent() {
		for _, n := range scope.Names() {
			o, ok := scope.Lookup(n).(*types.Var)
			if !ok || o == variable || o.Pos() >= name.Pos() || n == "_" || !types.Identical(o.Type(),
				variable.Type()) {
				continue
			}
			if _, found := f.pkg.Types.Scope().Innermost(name.Pos()).LookupParent(n, name.Pos()); found != o {
				continue // hidden by another variable of its name
			}
			if best == nil || o.Pos() > best.Pos() {
				best = o
			}
		}
	}
	if best == nil {
		return ""
	}
	return best.Name()
}

func (f *finder) sibling(e *ast.SelectorExpr) string {
	selection := f.pkg.TypesInfo.Selections[e]
	if selection == nil || selection.Kind() != types.FieldVal || !pure(e.X) || len(selection.Index()) != 1 {
		return ""
	}
	t := selection.Recv()
	if p, ok := under[*types.Pointer](t); ok {
		t = p.Elem()
	}
	s, ok := under[*types.Struct](t)
	if !ok {
		return ""
	}
	at := selection.Index()[0]
	for i := 1; i < s.NumFields(); i++ {
		field := s.Field((at + i) % s.NumFields())
		if types.Identical(field.Type(), selection.Type()) && !field.Embedded() &&
			(field.Exported() || field.Pkg() == f.pkg.Types) {
			return fmt.Sprintf("%s.%s", f.text(e.X), field.Name())
		}
	}
	return ""
}

// pure reports whether an expression may be evaluated any number of times, and without failing: names, fields and
// constants.
func pure(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident, *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return pure(e.X)
	case *ast.ParenExpr:
		return pure(e.X)
	default:
		return false
	}
}
