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
	MaxMethods   = 40 // that one type declares, exported or not, or one interface
	MaxEffective = 60 // that one type has, see MeasureTypes
	MaxFields    = 20 // that one struct has, with those of the structs that it embeds
	// names that a package declares at its top level: types, functions, variables and constants, not methods or fields
	MaxExported = 120
)

// Sizes are counts by the names of types ("storage.Store") and packages ("storage").
type Sizes struct {
	Methods   map[string]int
	Effective map[string]int
	Fields    map[string]int
	Exported  map[string]int
}

// bounds returns each kind of size as sizes.txt calls it, with its limit, its counts and its name in a complaint.
func (s Sizes) bounds() []bound {
	return []bound{
		{"methods", MaxMethods, s.Methods, "methods"},
		{"effective", MaxEffective, s.Effective, "effective methods"},
		{"fields", MaxFields, s.Fields, "fields"},
		{"exported", MaxExported, s.Exported, "exported names"},
	}
}

type bound struct {
	kind string
	max  int
	have map[string]int
	what string
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

// Exceptions are the counts over a limit that are allowed, by kind and name: "methods NAME". They may only shrink.
type Exceptions map[string]int

// ParseExceptions parses the notation explained in sizes.txt.
func ParseExceptions(text string) (Exceptions, error) {
	list := Exceptions{}
	for _, statement := range statements(text) {
		kind, rest, _ := strings.Cut(statement, " ")
		name, number, ok := strings.Cut(rest, ":")
		count, err := strconv.Atoi(strings.TrimSpace(number))
		known := slices.ContainsFunc(Sizes{}.bounds(), func(b bound) bool { return b.kind == kind })
		if !ok || err != nil || !known {
			return nil, fmt.Errorf("%q is not \"KIND NAME: COUNT\" with one of the kinds that sizes.txt explains",
				statement)
		}
		list[kind+" "+strings.TrimSpace(name)] = count
	}
	return list, nil
}

// CheckSizes returns a fault for each count over its limit, and for each exception that is not needed or larger than
// the count.
func CheckSizes(s Sizes, allowed Exceptions) []string {
	var faults []string
	for _, b := range s.bounds() {
		for _, name := range slices.Sorted(maps.Keys(b.have)) {
			count := b.have[name]
			if limit := cmp.Or(allowed[b.kind+" "+name], b.max); count > limit {
				faults = append(faults, fmt.Sprintf("%s has %d %s, the limit is %d: split it", name, count,
					b.what, limit))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(allowed)) {
			name, ok := strings.CutPrefix(key, b.kind+" ")
			if !ok {
				continue
			}
			switch count := b.have[name]; {
			case count <= b.max:
				faults = append(faults, fmt.Sprintf("%s needs no exception (%d %s): remove it from sizes.txt", name,
					count, b.what))
			case count < allowed[key]:
				faults = append(faults, fmt.Sprintf("%s has only %d %s: lower its exception of %d in sizes.txt", name,
					count, b.what, allowed[key]))
			}
		}
	}
	return faults
}

// Measure returns the sizes of packages, counting the files compiled on this platform.
func Measure(packages []Package) (Sizes, error) {
	s := Sizes{Methods: map[string]int{}, Effective: map[string]int{}, Fields: map[string]int{},
		Exported: map[string]int{}}
	for _, p := range packages {
		for _, file := range p.GoFiles {
			if err := s.add(nameOf(p.ImportPath), filepath.Join(p.Dir, file)); err != nil {
				return Sizes{}, err
			}
		}
	}
	return s, nil
}
