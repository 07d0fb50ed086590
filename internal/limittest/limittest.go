// Package limittest checks that the tests of a package try each of its limits exactly where it lies.
//
// A package's test passes a row for every numeric constant of its package. The test fails on a constant without a row,
// so that each new limit is tested, and on a row without a constant.
package limittest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A Row tells how a constant is tried. It has either Takes, or Test, or None.
type Row struct {
	At    int                               // the limit, as a number of its own: not the constant
	Least bool                              // At is the least that is taken; else the most
	Slow  bool                              // it takes longer than a test that runs with -short may
	Takes func(t *testing.T, size int) bool // reports whether this size is taken
	Test  string                            // the test of the package that tries the constant
	None  string                            // why there is nothing to try
}

// Check tries each row with At at one less, at the limit, and at one more, and compares the rows with the constants of
// the package in the current folder.
func Check(t *testing.T, rows map[string]Row) {
	t.Helper()
	numbers, tests := read(t, ".")
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if _, ok := rows[name]; !ok {
			t.Errorf("the constant %s has no row: add one that tries it at the limit", name)
		}
	}
	for name, row := range rows {
		switch {
		case !numbers[name]:
			t.Errorf("there is no numeric constant %s", name)
		case row.Test != "" && !tests[row.Test]:
			t.Errorf("%s: there is no test %s", name, row.Test)
		case (row.Takes == nil) == (row.Test == "" && row.None == ""):
			t.Errorf("%s: a row has one of Takes, Test and None", name)
		}
		if row.Takes != nil {
			t.Run(name, row.try)
		}
	}
}

func (r Row) try(t *testing.T) {
	if r.Slow && testing.Short() {
		t.Skip("slow")
	}
	for _, size := range []int{r.At - 1, r.At, r.At + 1} {
		want := size <= r.At
		if r.Least {
			want = size >= r.At
		}
		if got := r.Takes(t, size); got != want {
			t.Errorf("%d is taken: %t", size, got)
		}
	}
}

// read returns the numeric constants of the package in dir, and the names of its tests.
func read(t *testing.T, dir string) (numbers, tests map[string]bool) {
	t.Helper()
	numbers, tests = map[string]bool{}, map[string]bool{}
	files, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files: %v", err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		isTest := strings.HasSuffix(name, "_test.go")
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if isTest && d.Recv == nil {
					tests[d.Name.Name] = true
				}
			case *ast.GenDecl:
				if !isTest && d.Tok == token.CONST {
					addNumbers(d, numbers)
				}
			}
		}
	}
	return numbers, tests
}

var unit = regexp.MustCompile(`^(Nanosecond|Microsecond|Millisecond|Second|Minute|Hour)$`)

// addNumbers adds the constants of a declaration whose value has a number in it, or a duration.
func addNumbers(d *ast.GenDecl, numbers map[string]bool) {
	for _, spec := range d.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, expression := range value.Values {
			ast.Inspect(expression, func(node ast.Node) bool {
				switch n := node.(type) {
				case *ast.BasicLit:
					numbers[value.Names[i].Name] = numbers[value.Names[i].Name] || n.Kind == token.INT ||
						n.Kind == token.FLOAT
				case *ast.Ident:
					numbers[value.Names[i].Name] = numbers[value.Names[i].Name] || unit.MatchString(n.Name)
				}
				return true
			})
		}
	}
	delete(numbers, "_")
	maps.DeleteFunc(numbers, func(_ string, isNumber bool) bool { return !isNumber })
}
