package builtin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"syscall"
	"unicode/utf8"

	"turnkeeper/tools"
)

// sniffBytes is how far a NUL is looked for, that tells binary from text.
const sniffBytes = 8000

func readFile(ctx context.Context, root *os.Root, args readFileArgs) (tools.Result, error) {
	if args.Offset < 0 || args.Limit < 0 {
		return tools.Result{}, fmt.Errorf("offset and limit must not be negative")
	}
	name, err := localPath(args.Path)
	if err != nil {
		return tools.Result{}, err
	}
	file, size, err := openRegular(root, name)
	if err != nil {
		return tools.Result{}, err
	}
	defer func() { _ = file.Close() }()
	length, err := span(args, size)
	if err != nil {
		return tools.Result{}, err
	}
	content, err := io.ReadAll(contextReader{ctx, io.NewSectionReader(file, args.Offset, length)})
	if err != nil {
		return tools.Result{}, pathError(args.Path, err)
	}
	if binary, err := isBinary(file, content); err != nil {
		return tools.Result{}, pathError(args.Path, err)
	} else if binary {
		return tools.Result{Bytes: content, MediaType: mediaTypeOf(name, content)}, nil
	}
	cutAfter := args.Offset+int64(len(content)) < size
	return tools.Result{Text: string(wholeCharacters(content, args.Offset > 0, cutAfter))}, nil
}

// openRegular opens a regular file for reading. It looks before it opens, and
// opens without blocking, for opening a pipe waits and opening a device may
// do something.
func openRegular(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Stat(name)
	if err == nil {
		err = mustBeRegular(name, info)
	} else {
		err = pathError(name, err)
	}
	if err != nil {
		return nil, 0, err
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, pathError(name, err)
	}
	info, err = file.Stat()
	if err == nil {
		err = mustBeRegular(name, info)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

func mustBeRegular(name string, info os.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return fmt.Errorf("%q is a folder; use list_files", name)
	}
	return fmt.Errorf("%q is %s; only regular files can be read", name, kind(info.Mode()))
}

// span is how many bytes to read.
func span(args readFileArgs, size int64) (int64, error) {
	if args.Offset > size {
		return 0, fmt.Errorf("offset %d is past the end: %q has %d bytes", args.Offset, args.Path, size)
	}
	length := size - args.Offset
	if args.Limit > 0 {
		length = min(length, args.Limit)
	}
	if length > MaxReadBytes {
		return 0, fmt.Errorf("%q is too large to be read at once: it has %d bytes; use offset and limit, with a limit of at most %d",
			args.Path, size, MaxReadBytes)
	}
	return length, nil
}

// isBinary says that there is a NUL at the beginning of the file or in what was
// read of it.
func isBinary(file io.ReaderAt, content []byte) (bool, error) {
	head := make([]byte, sniffBytes)
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	return bytes.IndexByte(head[:n], 0) >= 0 || bytes.IndexByte(content, 0) >= 0, nil
}

func mediaTypeOf(name string, content []byte) string {
	return cmp.Or(mime.TypeByExtension(path.Ext(name)), http.DetectContentType(content))
}

// wholeCharacters drops the parts of characters where a text was cut: it
// begins at the next character, and ends with the last whole one.
func wholeCharacters(content []byte, cutBefore, cutAfter bool) []byte {
	for i := 0; cutBefore && i < utf8.UTFMax-1 && len(content) > 0 && !utf8.RuneStart(content[0]); i++ {
		content = content[1:]
	}
	for back := 1; cutAfter && back < utf8.UTFMax && back <= len(content); back++ {
		last := content[len(content)-back:]
		if utf8.RuneStart(last[0]) && !utf8.FullRune(last) {
			return content[:len(content)-back]
		}
	}
	return content
}

// A contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
