package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Target is code that together guards something, and the packages whose tests should notice
// its mutants.
type Target struct {
	Name      string
	Go        []Code   // conditions in Go
	Queries   []string // statements of storage/queries
	Functions []string // of the schema, as the last migration has them
	Tests     []string // packages
	First     string   // tests to run first, even if others are faster; a regular expression
	Skip      string   // tests not to run; a regular expression
}

// Code is a Go file; no functions named means all.
type Code struct {
	File      string
	Functions []string
}

// A world holds the mutants of a target, and the files that replace others for the compiler.
type world struct {
	root    string
	mutants []Mutant
	overlay map[string][]byte // by path from root
}

const queriesPackage = "storage/internal/dbsqlc"

// makeMutants makes the mutants of a target. refused has, by file, the lines whose mutants the compiler refused.
func makeMutants(root string, t Target, refused map[string]map[int]bool) (*world, error) {
	w := &world{root: root, overlay: map[string][]byte{}}
	byFolder := map[string]bool{}
	for _, code := range t.Go {
		byFolder[filepath.Dir(code.File)] = true
	}
	for folder := range byFolder { // one helper a package
		first, name := len(w.mutants)+1, ""
		for _, code := range t.Go {
			if filepath.Dir(code.File) != folder {
				continue
			}
			source, err := os.ReadFile(filepath.Join(root, code.File))
			if err != nil {
				return nil, err
			}
			rewritten, mutants, err := rewriteGo(code.File, source, code.Functions, len(w.mutants)+1, refused[code.File])
			if err != nil {
				return nil, err
			}
			w.overlay[code.File] = rewritten
			w.mutants = append(w.mutants, mutants...)
			name = packageClause.FindStringSubmatch(string(source))[1]
		}
		w.overlay[filepath.Join(folder, "mutants_.go")] = []byte(helper(name, first, len(w.mutants)))
	}
	if err := w.addQueries(t.Queries); err != nil {
		return nil, err
	}
	if err := w.addFunctions(t.Functions); err != nil {
		return nil, err
	}
	number(w.mutants)
	return w, nil
}

var (
	packageClause = regexp.MustCompile(`(?m)^package (\w+)`)
	constant_     = regexp.MustCompile("(?s)const (\\w+) = (`-- name: .*?`)")
	use           = regexp.MustCompile(`(q\.db\.(?:Exec|Query|QueryRow)\(ctx, )(\w+)`)
)

// addQueries makes mutants of statements, and turns the constants that hold them into variables.
func (w *world) addQueries(names []string) error {
	if len(names) == 0 {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(w.root, queriesPackage, "*.sql.go"))
	if err != nil {
		return err
	}
	missing := slices.Clone(names)
	first := len(w.mutants) + 1
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		path := "storage/queries/" + strings.TrimSuffix(filepath.Base(file), ".go")
		for _, found := range constant_.FindAllStringSubmatch(string(source), -1) {
			name, text := found[1], strings.Trim(found[2], "`")
			if !slices.Contains(names, name) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(s string) bool { return s == name })
			line, err := w.lineOf(path, "-- name: "+name+" ")
			if err != nil {
				return err
			}
			for _, c := range mutateSQL(text) {
				w.mutants = append(w.mutants, Mutant{ID: len(w.mutants) + 1, File: path, Line: line, Function: name,
					Before: c.before, After: c.after, Query: name, Text: c.apply(text)})
			}
		}
		rewritten := constant_.ReplaceAll(source, []byte(`var $1 = mutantQuery_("$1", $2)`))
		rewritten = use.ReplaceAll(rewritten, []byte(`${1}reachQuery_("$2", $2)`))
		w.overlay[queriesPackage+"/"+filepath.Base(file)] = rewritten
	}
	if len(missing) > 0 {
		return fmt.Errorf("there are no statements %s", strings.Join(missing, ", "))
	}
	w.overlay[queriesPackage+"/mutants_.go"] = []byte(queryHelper(w.mutants[first-1:]))
	return nil
}

func queryHelper(mutants []Mutant) string {
	var b strings.Builder
	fmt.Fprintf(&b, `package dbsqlc

import (
	"os"
	"strconv"
	"sync"
)

func mutantQuery_(name, text string) string {
	chosen, _ := strconv.Atoi(os.Getenv(%q))
	if m, ok := mutants_[chosen]; ok && m.query == name {
		return m.text
	}
	return text
}

var reached_ sync.Map

func reachQuery_(name, text string) string {
	path := os.Getenv(%q)
	if path == "" {
		return text
	}
	if _, again := reached_.LoadOrStore(name, true); !again {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			panic(err)
		}
		_, _ = f.WriteString(name + "\n")
		_ = f.Close()
	}
	return text
}

var mutants_ = map[int]struct{ query, text string }{
`, chosenVariable, reachVariable)
	for _, m := range mutants {
		fmt.Fprintf(&b, "\t%d: {%q, %s},\n", m.ID, m.Query, strconv.Quote(m.Text))
	}
	b.WriteString("}\n")
	return b.String()
}

// lineOf returns the line at which a file has a text.
func (w *world) lineOf(path, text string) (int, error) {
	content, err := os.ReadFile(filepath.Join(w.root, path))
	if err != nil {
		return 0, err
	}
	before, _, found := strings.Cut(string(content), text)
	if !found {
		return 0, fmt.Errorf("%s does not have %q", path, text)
	}
	return strings.Count(before, "\n") + 1, nil
}

// addFunctions makes mutants of functions of the schema.
func (w *world) addFunctions(names []string) error {
	for _, name := range names {
		path, line, text, err := schemaFunction(w.root, name)
		if err != nil {
			return err
		}
		for _, c := range mutateSQL(text) {
			w.mutants = append(w.mutants, Mutant{ID: len(w.mutants) + 1, File: path, Line: line + strings.Count(text[:c.start], "\n"),
				Function: name, Before: c.before, After: c.after, Schema: name, Text: c.apply(text)})
		}
	}
	return nil
}

// schemaFunction finds a function's last definition.
func schemaFunction(root, name string) (path string, line int, text string, err error) {
	files, err := filepath.Glob(filepath.Join(root, "migrations", "*.up.sql"))
	if err != nil {
		return "", 0, "", err
	}
	head := regexp.MustCompile(`(?m)^create (?:or replace )?function turnkeeper\.` + name + `\(`)
	for _, file := range slices.Backward(files) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", 0, "", err
		}
		at := head.FindIndex(content)
		if at == nil {
			continue
		}
		text := firstStatement(string(content[at[0]:]))
		text = strings.Replace(text, "create function", "create or replace function", 1)
		return "migrations/" + filepath.Base(file), strings.Count(string(content[:at[0]]), "\n") + 1, text, nil
	}
	return "", 0, "", fmt.Errorf("the migrations have no function %s", name)
}

// firstStatement returns a text up to the semicolon that ends its first statement.
func firstStatement(text string) string {
	quoted := false
	for _, t := range sqlTokens(text) {
		switch {
		case t.text == "$$":
			quoted = !quoted
		case t.text == ";" && !quoted:
			return text[:t.end]
		}
	}
	return text
}

var body = regexp.MustCompile(`(?is)(as \$\$.*?)\bbegin\b`)

// counted returns the function with a sequence that counts its calls: a rollback does not undo a
// sequence. ok is false for functions that are a single expression.
func counted(name, text string) (sql string, ok bool) {
	if !strings.Contains(text, "plpgsql") {
		return "", false
	}
	at := body.FindStringIndex(text)
	if at == nil {
		return "", false
	}
	return fmt.Sprintf("create sequence mutants.%s;\n%s perform nextval('mutants.%s'); %s\n", name, text[:at[1]], name, text[at[1]:]), true
}

// write puts the overlay into a folder and returns the path of its list, as go build -overlay reads it.
func (w *world) write(folder string) (string, error) {
	replace := map[string]string{}
	for path, content := range w.overlay {
		at := filepath.Join(folder, strings.ReplaceAll(path, "/", "__"))
		if err := os.WriteFile(at, content, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(w.root, path)] = at
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
