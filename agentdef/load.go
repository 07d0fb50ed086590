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

// Load reads all agents of a folder, sorted by name. It follows links, and ignores files that
// do not end in .md, README.md, hidden files and subfolders. A folder without agents gives an
// empty list.
//
// The error joins all faults of all files, each a *Problem, in the order of names and lines.
// Load then still returns the definitions of the files without a fault. If the folder does not
// exist or cannot be read, the error is not a *Problem.
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

// ReadAll reads the files that Load reads, in the order of their names, including those with
// faults. It fails if the folder does not exist or cannot be read.
func ReadAll(dir string) ([]Reading, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the agents folder %s does not exist: create it, or set agents_dir", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the agents folder %s: %w", dir, err)
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
	return err != nil || !info.IsDir() // if it cannot be opened, reading it reports the error
}

// Overlooked lists the files of a folder that Load ignores although they may be meant as
// agents: those that end in .MD or the like. It ignores a folder that cannot be read.
func Overlooked(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		extension := filepath.Ext(name)
		if entry.IsDir() || strings.HasPrefix(name, ".") || extension == ".md" ||
			!strings.EqualFold(extension, ".md") ||
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
