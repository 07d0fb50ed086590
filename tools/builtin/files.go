package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// Limits of the file tools.
const (
	MaxReadBytes   = 10_000_000 // one read_file
	MaxListEntries = 1000       // one list_files
	MaxWriteBytes  = 10_000_000 // one write_file whose text is a result; written out, tools.MaxArgumentBytes bound it
)

type readFileArgs struct {
	Path   string `json:"path" jsonschema:"path of the file, relative to the root folder"`
	Offset int64  `json:"offset,omitempty" jsonschema:"byte to start at; 0 is the beginning"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"bytes to read, and what is left of the last character; the rest of the file when left out. The next part begins at offset + limit"`
}

type listFilesArgs struct {
	Path      string `json:"path,omitempty" jsonschema:"folder, relative to the root folder; the root folder itself when left out"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"list the folders below it too"`
}

const (
	nameReadFile  = "read_file"
	nameListFiles = "list_files"
	nameWriteFile = "write_file"
)

// NeedsRoot reports whether a tool of this package fails for an agent without a root folder.
func NeedsRoot(tool string) bool {
	return tool == nameReadFile || tool == nameListFiles || tool == nameWriteFile
}

// A FileStore keeps the labels of files. Implementations must be safe for concurrent use. Paths are absolute and
// without links.
type FileStore interface {
	// WriteFile runs write, which writes a file, and keeps the labels of the new content in place of those of the old
	// one. While write runs, the file has the labels of both.
	WriteFile(ctx context.Context, agent, path string, labels []policy.Mark, write func() error) error
	// FileLabels returns the labels of a file, or of all files below a folder. The path of a folder ends with a slash.
	FileLabels(ctx context.Context, path string) ([]policy.Mark, error)
}

// NewFiles returns the tools `read_file` and `list_files`, both of effect none, and
// `write_file`, of effect keyed. They access only regular files and folders in the
// folder that root returns for the agent; a link or .. that leads out of it is
// refused. If root is nil or returns "", all of them return an error. Files keep the labels
// of what was written into them, and lists those of the files in them. If labels is nil,
// they are not kept.
func NewFiles(root func(agent string) string, labels FileStore) []tools.Tool {
	f := files{root: root, labels: labels}
	read := tools.Spec{
		Name: nameReadFile,
		Description: "Reads a file of the root folder. A text file gives its text. " +
			"Files over 10 MB must be read in parts, with offset and limit.",
		Effect: turnkeeper.EffectNone,
	}
	list := tools.Spec{
		Name: nameListFiles,
		Description: "Lists a folder of the root folder, one entry a line: a file with a tab and its size in bytes, " +
			"a folder with a slash, a link with @. At most 1000 entries.",
		Effect: turnkeeper.EffectNone,
	}
	return []tools.Tool{tools.New(read, f.read), tools.New(list, f.list), tools.New(writeSpec, f.write)}
}

type files struct {
	root   func(agent string) string
	labels FileStore // nil: none
}

// open opens the agent's root folder.
func (f files) open(agent string) (*os.Root, error) {
	folder := ""
	if f.root != nil {
		folder = f.root(agent)
	}
	if folder == "" {
		return nil, errors.New("this agent has no root folder; set `root:` in its file")
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("this agent's root folder cannot be opened (%s); check `root:` in its file", reason(err))
	}
	return root, nil
}

func (f files) read(ctx context.Context, call tools.Call, args readFileArgs) (tools.Result, error) {
	root, err := f.open(call.Agent)
	if err != nil {
		return tools.Result{}, err
	}
	defer func() { _ = root.Close() }()
	return f.labelled(ctx, root, args.Path, "", func() (tools.Result, error) { return readFile(ctx, call, root, args) })
}

func (f files) list(ctx context.Context, call tools.Call, args listFilesArgs) (tools.Result, error) {
	root, err := f.open(call.Agent)
	if err != nil {
		return tools.Result{}, err
	}
	defer func() { _ = root.Close() }()
	return f.labelled(ctx, root, args.Path, "/", func() (tools.Result, error) { return listFiles(ctx, root, args) })
}

// labelled returns the result of a read, with the labels of what it may have read. It looks for them before and after
// the read, because the file may be written meanwhile.
func (f files) labelled(ctx context.Context, root *os.Root, name, slash string,
	read func() (tools.Result, error)) (tools.Result, error) {
	file, err := realPath(root, name)
	if f.labels == nil || err != nil { // then there is nothing to read
		return read()
	}
	before, err := f.labels.FileLabels(ctx, file+slash)
	if err != nil {
		return tools.Result{}, &storeError{"the labels of the file could not be read", err}
	}
	result, err := read()
	if err != nil {
		return result, err
	}
	after, err := f.labels.FileLabels(ctx, file+slash)
	if err != nil {
		return tools.Result{}, &storeError{"the labels of the file could not be read", err}
	}
	result.Labels = policy.Join(before, after)
	return result, nil
}

// realPath returns the absolute path of a file or folder, without links.
func realPath(root *os.Root, name string) (string, error) {
	folder, err := filepath.Abs(root.Name())
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(filepath.Join(folder, filepath.FromSlash(name)))
}

// localPath returns the cleaned path for os.Root. It refuses an absolute path.
func localPath(name string) (string, error) {
	if path.IsAbs(name) {
		return "", fmt.Errorf("%q is an absolute path; give one relative to the root folder", name)
	}
	return path.Clean(name), nil
}

// pathError returns an error for the model. It contains no path but name, which the
// model gave.
func pathError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file or folder %q", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may not be read: permission denied", name)
	case isOutside(err):
		return fmt.Errorf("%q is outside of the root folder", name)
	}
	return fmt.Errorf("%q cannot be read: %s", name, reason(err))
}

// isOutside reports whether os.Root refused a path that leads out of it.
func isOutside(err error) bool { return strings.Contains(err.Error(), "escapes from parent") }

// reason returns the error's text without the path.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// kind describes the type of a file that is neither a regular file nor a folder.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}
