package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits of sizes.
const (
	MaxMethods  = 40  // of one type, exported or not, or of one interface
	MaxExported = 120 // names that a package declares at its top level: types, functions, variables and constants, not methods or fields
)

// Sizes are counts by the names of types ("storage.Store") and packages ("storage").
type Sizes struct {
	Methods  map[string]int
	Exported map[string]int
}

// add counts a parsed file. Generated files do not count.
func (s *Sizes) add(pkg, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	for _, declaration := range file.Decls {
		s.count(pkg, declaration)
	}
	return nil
}

func (s *Sizes) count(pkg string, declaration ast.Decl) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			s.Methods[pkg+"."+receiver(d.Recv.List[0].Type)]++
		} else if d.Name.IsExported() {
			s.Exported[pkg]++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				s.export(pkg, spec.Name)
				if i, ok := spec.Type.(*ast.InterfaceType); ok {
					for _, method := range i.Methods.List {
						s.Methods[pkg+"."+spec.Name.Name] += len(method.Names)
					}
				}
			case *ast.ValueSpec:
				s.export(pkg, spec.Names...)
			}
		}
	}
}

func (s *Sizes) export(pkg string, names ...*ast.Ident) {
	for _, name := range names {
		if name.IsExported() {
			s.Exported[pkg]++
		}
	}
}

// receiver returns the name of a receiver's type, without pointer and type parameters.
func receiver(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.ParenExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// Exceptions are the counts over a limit that are allowed, by "methods NAME" or "exported NAME". They may only shrink.
type Exceptions map[string]int

// ParseExceptions parses the notation explained in sizes.txt.
func ParseExceptions(text string) (Exceptions, error) {
	list := Exceptions{}
	for _, statement := range statements(text) {
		kind, rest, _ := strings.Cut(statement, " ")
		name, number, ok := strings.Cut(rest, ":")
		count, err := strconv.Atoi(strings.TrimSpace(number))
		if !ok || err != nil || kind != "methods" && kind != "exported" {
			return nil, fmt.Errorf("%q is not \"methods TYPE: COUNT\" or \"exported PACKAGE: COUNT\"", statement)
		}
		list[kind+" "+strings.TrimSpace(name)] = count
	}
	return list, nil
}

// CheckSizes returns a fault for each count over its limit, and for each unneeded exception.
func CheckSizes(s Sizes, allowed Exceptions) []string {
	var faults []string
	for _, bound := range []struct {
		kind string
		max  int
		have map[string]int
	}{{"methods", MaxMethods, s.Methods}, {"exported", MaxExported, s.Exported}} {
		what := bound.kind
		if what == "exported" {
			what = "exported names"
		}
		for _, name := range slices.Sorted(maps.Keys(bound.have)) {
			count := bound.have[name]
			if most := cmp.Or(allowed[bound.kind+" "+name], bound.max); count > most {
				faults = append(faults, fmt.Sprintf("%s has %d %s, the limit is %d: split it", name, count, what, most))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(allowed)) {
			name, ok := strings.CutPrefix(key, bound.kind+" ")
			if !ok {
				continue
			}
			if count := bound.have[name]; count <= bound.max {
				faults = append(faults, fmt.Sprintf("%s needs no exception (%d %s): remove it from sizes.txt", name, count, what))
			}
		}
	}
	return faults
}

// Measure returns the sizes of packages, counting the files compiled on this platform.
func Measure(packages []Package) (Sizes, error) {
	s := Sizes{Methods: map[string]int{}, Exported: map[string]int{}}
	for _, p := range packages {
		for _, file := range p.GoFiles {
			if err := s.add(nameOf(p.ImportPath), filepath.Join(p.Dir, file)); err != nil {
				return Sizes{}, err
			}
		}
	}
	return s, nil
}
