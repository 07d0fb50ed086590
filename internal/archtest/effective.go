package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// MeasureTypes adds the effective methods and fields of the types of packages to their sizes. exports has the files of
// compiled packages by their import paths. Generated files do not count.
//
// The effective methods of a type are those that it declares, those that are promoted from what it embeds, and those of
// its wrappers: structs of its package with one field, which is this type or a pointer to it. So neither embedding nor
// wrapping makes a type smaller.
func (s Sizes) MeasureTypes(packages []Package, exports map[string]string) error {
	files := token.NewFileSet()
	imports := exported(files, exports)
	for _, p := range packages {
		checked, parsed, err := check(p, files, imports, &types.Info{})
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		byHand := map[*token.File]bool{}
		for _, file := range parsed {
			byHand[files.File(file.Pos())] = !ast.IsGenerated(file)
		}
		for _, t := range namedTypes(checked) {
			if byHand[files.File(t.Obj().Pos())] {
				s.measure(nameOf(p.ImportPath), t)
			}
		}
	}
	return nil
}

// namedTypes returns the types that a package declares at its top level.
func namedTypes(p *types.Package) (found []*types.Named) {
	for _, name := range p.Scope().Names() {
		object, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok || object.IsAlias() {
			continue
		}
		if t, ok := object.Type().(*types.Named); ok {
			found = append(found, t)
		}
	}
	return found
}

// measure counts a type, and adds the methods that it declares to those of the type that it wraps.
func (s Sizes) measure(pkg string, t *types.Named) {
	name := pkg + "." + t.Obj().Name()
	s.Effective[name] += methodsOf(t)
	fields, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	s.Fields[name] = fieldsOf(fields)
	if fields.NumFields() != 1 {
		return
	}
	if wrapped := pointedTo(fields.Field(0).Type()); wrapped != nil && wrapped.Obj().Pkg() == t.Obj().Pkg() {
		s.Effective[pkg+"."+wrapped.Obj().Name()] += t.NumMethods()
	}
}

func methodsOf(t *types.Named) int {
	if types.IsInterface(t) {
		return types.NewMethodSet(t).Len()
	}
	return types.NewMethodSet(types.NewPointer(t)).Len()
}

// fieldsOf counts the fields of a struct. A struct of this module that it embeds counts with its fields instead.
func fieldsOf(s *types.Struct) (n int) {
	for field := range s.Fields() {
		n++
		embedded := pointedTo(field.Type())
		if !field.Embedded() || embedded == nil || embedded.Obj().Pkg() == nil || !isOurs(embedded.Obj().Pkg().Path()) {
			continue
		}
		if inner, ok := embedded.Underlying().(*types.Struct); ok {
			n += fieldsOf(inner) - 1
		}
	}
	return n
}

// pointedTo returns the named type that t is or points to; nil if there is none.
func pointedTo(t types.Type) *types.Named {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, _ := t.(*types.Named)
	return named
}
