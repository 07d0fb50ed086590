package archtest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// decoders are the functions and methods that decode JSON, with the number of the argument that they decode into.
var decoders = map[string]int{
	"encoding/json.Unmarshal":                          1,
	"(*encoding/json.Decoder).Decode":                  0,
	"(turnkeeper/internal/jsonlimit.Limits).Unmarshal": 1,
	"(turnkeeper/internal/jsonlimit.Limits).Exact":     1,
}

// ValueReads counts the places that decode JSON into any, or into what has an any in it, by file. exports has the files
// of compiled packages by their import paths. A place that decodes into an argument of type any counts too.
func ValueReads(packages []Package, exports map[string]string) (map[string]int, error) {
	files := token.NewFileSet()
	imports := exported(files, exports)
	found := map[string]int{}
	for _, p := range packages {
		if isExempt(nameOf(p.ImportPath)) {
			continue
		}
		if err := valueReadsIn(p, files, imports, found); err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return found, nil
}

func valueReadsIn(p Package, files *token.FileSet, imports types.Importer, found map[string]int) error {
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	_, parsed, err := check(p, files, imports, &info)
	if err != nil {
		return err
	}
	for _, file := range parsed {
		name := path.Join(nameOf(p.ImportPath), filepath.Base(files.Position(file.Pos()).Filename))
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok && readsValue(call, &info) {
				found[name]++
			}
			return true
		})
	}
	return nil
}

// exported returns an importer that reads the exports of compiled packages.
func exported(files *token.FileSet, exports map[string]string) types.Importer {
	return importer.ForCompiler(files, "gc", func(of string) (io.ReadCloser, error) { return os.Open(exports[of]) })
}

// check type-checks the sources of a package.
func check(p Package, files *token.FileSet, imports types.Importer,
	info *types.Info) (checked *types.Package, parsed []*ast.File, err error) {
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		parsed = append(parsed, file)
	}
	checker := types.Config{Importer: imports}
	checked, err = checker.Check(p.ImportPath, files, parsed, info)
	return checked, parsed, err
}

// readsValue reports whether a call decodes JSON into any, or into what has an any in it.
func readsValue(call *ast.CallExpr, info *types.Info) bool {
	name, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	function, ok := info.Uses[name.Sel].(*types.Func)
	if !ok {
		return false
	}
	into, ok := decoders[function.FullName()]
	if !ok || into >= len(call.Args) {
		return false
	}
	return hasAny(info.Types[call.Args[into]].Type, nil)
}

// hasAny reports whether a type that JSON is decoded into has an empty interface in it.
func hasAny(t types.Type, within []types.Type) bool {
	if slices.ContainsFunc(within, func(outer types.Type) bool { return types.Identical(outer, t) }) {
		return false
	}
	within = append(slices.Clip(within), t)
	if method, _, _ := types.LookupFieldOrMethod(t, true, nil, "UnmarshalJSON"); method != nil {
		return false // it decodes itself
	}
	switch u := t.Underlying().(type) {
	case *types.Interface:
		return true
	case *types.Pointer:
		return hasAny(u.Elem(), within)
	case *types.Slice:
		return hasAny(u.Elem(), within)
	case *types.Array:
		return hasAny(u.Elem(), within)
	case *types.Map:
		return hasAny(u.Elem(), within)
	case *types.Struct:
		for i := range u.NumFields() {
			skipped := strings.HasPrefix(u.Tag(i), `json:"-"`)
			if field := u.Field(i); !skipped && (field.Exported() || field.Embedded()) && hasAny(field.Type(), within) {
				return true
			}
		}
	}
	return false
}
