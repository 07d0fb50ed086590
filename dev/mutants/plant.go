package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

const switches = "turnkeeper/internal/chosen"

// programs are what users run or import. Code that none of them contains (test doubles, tools of this repository) is
// not mutated, and neither is worker bench.
var programs = []string{"./cmd/...", "./client", "."}

// A ground is the code to plant mutants into.
type ground struct {
	root     string
	packages []*packages.Package
	switches *types.Package
	sources  map[string][]byte // of the Go files, by path from the root
	spots    []spot
}

// survey loads packages and finds all spots in them.
func survey(root string, paths ...string) (*ground, error) {
	all, err := packages.Load(&packages.Config{Dir: root, Mode: packages.LoadSyntax | packages.NeedModule},
		append(paths, switches)...)
	if err != nil {
		return nil, err
	}
	g := &ground{root: root, sources: map[string][]byte{}}
	for _, pkg := range all {
		if len(pkg.Errors) > 0 {
			return nil, pkg.Errors[0]
		}
		if pkg.PkgPath == switches {
			g.switches = pkg.Types
			continue
		}
		g.packages = append(g.packages, pkg)
		if err := g.spotsIn(pkg); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// programPackages returns the packages of this module that the programs contain.
func programPackages(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-f",
		"{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}"}, programs...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of the programs: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		return path == "turnkeeper/internal/bench"
	}), nil
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func (g *ground) spotsIn(pkg *packages.Package) error {
	for i, syntax := range pkg.Syntax {
		path, err := filepath.Rel(g.root, pkg.CompiledGoFiles[i])
		if err != nil || strings.HasPrefix(path, "..") {
			continue // made by cgo
		}
		source, err := os.ReadFile(pkg.CompiledGoFiles[i])
		if err != nil {
			return err
		}
		if generated.Match(source) {
			continue
		}
		g.sources[path] = source
		for _, s := range spotsOf(pkg, syntax, path, source) {
			s.pkg = filepath.Dir(path)
			g.spots = append(g.spots, s)
		}
	}
	return nil
}

// planted returns the sources with these spots, each with its id. What the compiler would refuse is left out and
// returned as refused.
func (g *ground) planted(ids map[int]spot) (overlay map[string][]byte, refused map[int]bool, err error) {
	overlay, refused = map[string][]byte{}, map[int]bool{}
	for _, pkg := range g.packages {
		for {
			files, at := g.rewrite(pkg, ids, refused)
			if len(files) == 0 {
				break
			}
			bad, err := g.check(pkg, files, at)
			if err != nil {
				return nil, nil, err
			}
			if len(bad) == 0 {
				for path, f := range files {
					overlay[path] = f
				}
				break
			}
			for id := range bad {
				refused[id] = true
			}
		}
	}
	return overlay, refused, nil
}

// rewrite returns the files of a package that have spots, and where the text of each mutant stands in them.
func (g *ground) rewrite(pkg *packages.Package, ids map[int]spot,
	refused map[int]bool) (files map[string][]byte, at map[string][]placed) {
	files, at = map[string][]byte{}, map[string][]placed{}
	type numbered struct {
		edit
		id int
	}
	byFile := map[string][]numbered{}
	for id, s := range ids {
		if refused[id] || g.folder(pkg) != s.pkg {
			continue
		}
		for _, e := range s.edits {
			byFile[s.path] = append(byFile[s.path], numbered{e, id})
		}
	}
	for path, edits := range byFile {
		slices.SortFunc(edits, func(a, b numbered) int { return a.start - b.start })
		source := g.sources[path]
		var out []byte
		last := 0
		for _, e := range edits {
			out = append(out, source[last:e.start]...)
			begin := len(out)
			out = append(out, strings.ReplaceAll(e.text, "$", strconv.Itoa(e.id))...)
			at[path] = append(at[path], placed{e.id, begin, len(out)})
			last = e.end
		}
		out = append(out, source[last:]...)
		const line = "; import chosen_ \"" + switches + "\""
		clause := packageClause.FindIndex(out)
		out = slices.Insert(out, clause[1], []byte(line)...)
		for i := range at[path] {
			at[path][i].start += len(line)
			at[path][i].end += len(line)
		}
		files[path] = out
	}
	return files, at
}

// placed is where the text of a mutant stands in a rewritten file.
type placed struct{ id, start, end int }

func (g *ground) folder(pkg *packages.Package) string {
	folder, err := filepath.Rel(g.root, filepath.Dir(pkg.CompiledGoFiles[0]))
	if err != nil {
		panic(err)
	}
	return folder
}

// check type-checks a package with rewritten files, and returns the mutants with errors.
func (g *ground) check(pkg *packages.Package, files map[string][]byte,
	at map[string][]placed) (bad map[int]bool, err error) {
	set := token.NewFileSet()
	var syntax []*ast.File
	bad = map[int]bool{}
	blame := func(path string, from, to int) (found bool) {
		for _, p := range at[path] {
			if p.start < to && from < p.end {
				bad[p.id], found = true, true
			}
		}
		return found
	}
	// An error between the mutants, such as a missing return, is blamed on all mutants of its function.
	around := func(pos token.Pos) (from, to int) {
		for _, file := range syntax {
			for _, d := range file.Decls {
				if d.Pos() <= pos && pos <= d.End() {
					return set.Position(d.Pos()).Offset, set.Position(d.End()).Offset
				}
			}
		}
		return 0, 0
	}
	if syntax, err = g.parse(set, pkg, files); err != nil {
		return nil, err
	}
	var unexplained error
	config := types.Config{
		Importer:  importer(func(path string) (*types.Package, error) { return g.imported(pkg, path) }),
		GoVersion: "go" + pkg.Module.GoVersion,
		Error: func(err error) {
			var fault types.Error
			if !errors.As(err, &fault) {
				unexplained = err
				return
			}
			position := set.Position(fault.Pos)
			path, _ := filepath.Rel(g.root, position.Filename)
			from, to := around(fault.Pos)
			if !blame(path, position.Offset, position.Offset+1) && !blame(path, from, to) {
				unexplained = err
			}
		},
	}
	_, _ = config.Check(pkg.PkgPath, set, syntax, nil)
	if len(bad) == 0 {
		return nil, unexplained
	}
	return bad, nil
}

// parse parses the files of a package, some of them rewritten.
func (g *ground) parse(set *token.FileSet, pkg *packages.Package,
	files map[string][]byte) (syntax []*ast.File, err error) {
	for _, name := range pkg.CompiledGoFiles {
		path, _ := filepath.Rel(g.root, name)
		var source any
		if f, ok := files[path]; ok {
			source = f
		}
		file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		syntax = append(syntax, file)
	}
	return syntax, nil
}

type importer func(string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }

func (g *ground) imported(pkg *packages.Package, path string) (*types.Package, error) {
	if path == switches {
		return g.switches, nil
	}
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if imported := pkg.Imports[path]; imported != nil {
		return imported.Types, nil
	}
	return nil, fmt.Errorf("%s is not imported", path)
}
