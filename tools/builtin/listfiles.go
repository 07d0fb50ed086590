package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"turnkeeper/tools"
)

func listFiles(ctx context.Context, root *os.Root, args listFilesArgs) (tools.Result, error) {
	name, err := localPath(args.Path)
	if err != nil {
		return tools.Result{}, err
	}
	info, err := root.Stat(name)
	if err != nil {
		return tools.Result{}, pathError(cmp.Or(args.Path, name), err)
	}
	if !info.IsDir() {
		return tools.Result{}, fmt.Errorf("%q is not a folder; use read_file", args.Path)
	}
	l := lister{ctx: ctx, root: root, recursive: args.Recursive}
	if err := l.folder(name); err != nil {
		return tools.Result{}, err
	}
	return tools.Result{Text: l.text()}, nil
}

// A lister collects the lines of a listing.
type lister struct {
	ctx       context.Context
	root      *os.Root
	recursive bool
	lines     []string
	cut       bool
}

// folder lists a folder in order of name, each subfolder followed by its entries if
// recursive. It lists links, but does not follow them.
func (l *lister) folder(name string) error {
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	entries, err := l.entries(name)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if len(l.lines) == MaxListEntries {
			l.cut = true
			return nil
		}
		if err := l.entry(path.Join(name, entry.Name()), entry); err != nil {
			return err
		}
	}
	return nil
}

// entries returns the first MaxListEntries+1 entries of a folder in order of name.
// The system returns them in no order, so it reads all and keeps only those.
func (l *lister) entries(name string) ([]fs.DirEntry, error) {
	folder, err := l.root.Open(name)
	if err != nil {
		return nil, pathError(name, err)
	}
	defer func() { _ = folder.Close() }()
	var first []fs.DirEntry
	for {
		if err := context.Cause(l.ctx); err != nil {
			return nil, err
		}
		some, err := folder.ReadDir(MaxListEntries)
		first = append(first, some...)
		slices.SortFunc(first, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
		first = first[:min(len(first), MaxListEntries+1)]
		switch {
		case errors.Is(err, io.EOF):
			return first, nil
		case err != nil:
			return nil, pathError(name, err)
		}
	}
}

func (l *lister) entry(name string, entry fs.DirEntry) error {
	shown := printable(name)
	switch {
	case entry.IsDir():
		l.lines = append(l.lines, shown+"/")
		if !l.recursive {
			return nil
		}
		if err := l.folder(name); err != nil && l.ctx.Err() == nil {
			l.lines[len(l.lines)-1] += "\t(" + err.Error() + ")"
			return nil
		}
		return context.Cause(l.ctx)
	case entry.Type()&fs.ModeSymlink != 0:
		l.lines = append(l.lines, shown+"@")
	case !entry.Type().IsRegular():
		l.lines = append(l.lines, shown+"\t("+kind(entry.Type())+")")
	default:
		l.lines = append(l.lines, shown+"\t"+sizeOf(entry))
	}
	return nil
}

func sizeOf(entry fs.DirEntry) string {
	info, err := entry.Info()
	if err != nil {
		return "?"
	}
	return strconv.FormatInt(info.Size(), 10)
}

// printable quotes a name that has special characters, such as a line break.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

func (l *lister) text() string {
	if len(l.lines) == 0 {
		return "The folder is empty."
	}
	text := strings.Join(l.lines, "\n")
	if l.cut {
		text += fmt.Sprintf("\n[... truncated: showing first %d entries]", MaxListEntries)
	}
	return text
}
