package agentdef

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads every agent of a folder, sorted by name. Files that do not end
// in .md, README.md, hidden files and subfolders are ignored; links are
// followed. A folder without agents is an empty list.
//
// The error joins every fault of every file, each a *Problem, in the order of
// names and lines; the definitions of the files without a fault come with it.
// A folder that does not exist or cannot be read is a plain error.
func Load(dir string) ([]*Definition, error) {
	readings, err := ReadAll(dir)
	if err != nil {
		return nil, err
	}
	var defs []*Definition
	var errs []error
	for _, r := range readings {
		if len(r.Faults) > 0 {
			errs = append(errs, r.Faults...)
			continue
		}
		defs = append(defs, r.Definition)
	}
	slices.SortFunc(defs, func(a, b *Definition) int { return cmp.Compare(a.Name, b.Name) })
	return defs, errors.Join(errs...)
}

// ReadAll reads the files that Load does, in the order of their names, faults and
// all. Its error is a folder that does not exist or cannot be read.
func ReadAll(dir string) ([]Reading, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the agents folder %s does not exist: create it, or set agents_dir", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the agents folder %s cannot be read: %w", dir, err)
	}
	var readings []Reading
	for _, entry := range entries {
		if path := filepath.Join(dir, entry.Name()); isAgent(path) {
			readings = append(readings, Read(path))
		}
	}
	return readings, nil
}

func isAgent(path string) bool {
	name := filepath.Base(path)
	if !strings.HasSuffix(name, ".md") || strings.HasPrefix(name, ".") || strings.EqualFold(name, "README.md") {
		return false
	}
	info, err := os.Stat(path)
	return err != nil || !info.IsDir() // what cannot be looked at is reported when it is read
}

// Overlooked lists the files of a folder that Load ignores and that may be
// meant as agents: those that end in .MD or the like. A folder that cannot be
// read has none.
func Overlooked(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		extension := filepath.Ext(name)
		if entry.IsDir() || strings.HasPrefix(name, ".") || extension == ".md" || !strings.EqualFold(extension, ".md") ||
			strings.EqualFold(name, "README.md") {
			continue
		}
		files = append(files, filepath.Join(dir, name))
	}
	return files
}

// Read reads the file of one agent as ReadAll does.
func Read(path string) Reading {
	source, err := readFile(path)
	if err != nil {
		return Reading{Path: path, Faults: []error{err}}
	}
	return inspect(path, source)
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, &Problem{Path: path, Text: "this is not a regular file"}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer func() { _ = file.Close() }()
	source, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	return source, nil
}

func unreadable(path string, err error) error {
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		err = cause.Err // the path is already named
	}
	return &Problem{Path: path, Text: fmt.Sprintf("the file cannot be read: %v", err)}
}
