package archtest

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"unicode/utf8"
)

// MaxColumns is the limit of a line. A tab counts as four.
const MaxColumns = 120

// long is how many columns of one text excuse a line over the limit: a text is not cut into pieces for it.
const long = 40

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// printed matches the line before the output of an example, whose lines are as long as what it prints.
var printed = regexp.MustCompile(`^\t// (Unordered o|O)utput:`)

// LongLines returns a fault for each line of a Go or SQL file over MaxColumns, unless a text of more than 40 columns
// stands in it.
func LongLines(path string, source []byte) (faults []string) {
	texts := sqlTexts
	if strings.HasSuffix(path, ".go") {
		if generated.Match(source) {
			return nil
		}
		texts = goTexts
	}
	excused := texts(source)
	n, output := 0, false
	for line := range bytes.Lines(source) {
		n++
		width := columns(string(bytes.TrimRight(line, "\n")))
		output = printed.Match(line) || output && bytes.HasPrefix(line, []byte("\t//"))
		if width > MaxColumns && !excused[n] && !output {
			faults = append(faults, fmt.Sprintf("%s:%d has %d columns, the limit is %d: break the line", path, n, width,
				MaxColumns))
		}
	}
	return faults
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// goTexts returns the numbers of the lines in which a string literal is long, or that are a part of one of several
// lines.
func goTexts(source []byte) map[int]bool {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	excused := map[int]bool{}
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return excused
		}
		if kind != token.STRING {
			continue
		}
		for line := range strings.Lines(literal) {
			if columns(line) > long || strings.Contains(literal, "\n") {
				excused[file.Line(at)] = true
			}
			at += token.Pos(len(line))
		}
	}
}

var sqlString = regexp.MustCompile(`'[^'\n]*'`)

func sqlTexts(source []byte) map[int]bool {
	excused, n := map[int]bool{}, 0
	for line := range bytes.Lines(source) {
		n++
		for _, found := range sqlString.FindAll(line, -1) {
			if columns(string(found)) > long {
				excused[n] = true
			}
		}
	}
	return excused
}
