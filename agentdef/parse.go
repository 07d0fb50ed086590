package agentdef

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// MaxSize is the largest agent file, in bytes. Its front matter may take 64
// KiB and 2000 lines of it.
const MaxSize = 1 << 20

// A Problem is one fault of an agent file: path, line (0: the file as a
// whole) and a plain sentence. Errors of this package that are about agent
// files are one Problem, or several joined.
type Problem = strictyaml.Problem

// Parse reads one agent from the text of its file; the file itself is not
// opened. The agent's name is the file's, without .md, and as
// turnkeeper.CheckAgentName wants it. A relative root starts at the
// folder that holds the agents folder, which is the folder of path, and
// becomes absolute.
//
// The text begins with a line "---"; the front matter ends with another one,
// and may be empty; the rest is the system prompt, trimmed, which may not be
// empty. The text is UTF-8 without NUL, at most MaxSize bytes. A byte order
// mark and CRLF line ends are accepted; the prompt has LF line ends.
//
// An agent without model has an empty Model: it takes the process's default.
// All other defaults named in Definition and Schedule are filled in where they
// have no zero meaning. The error joins every fault of the file, in the order
// of lines, each a *Problem; with an error there is no Definition.
func Parse(path string, source []byte) (*Definition, error) {
	reading := inspect(path, source)
	return reading.definition()
}

func inspect(path string, source []byte) Reading {
	name := strings.TrimSuffix(filepath.Base(path), ".md")
	return parse(path, name, filepath.Join(filepath.Dir(path), ".."), source)
}

// ParseRecorded reads the definition that is kept with a turn. It is as strict
// as Parse was, at least: what was accepted once is accepted again by the same version, and
// a version that no longer knows a key says so instead of running the agent
// without it. Path is empty. A relative root starts at the working directory;
// a caller whose agents folder is elsewhere uses Parse with the path that
// the file would have there.
func ParseRecorded(name string, source []byte) (*Definition, error) {
	reading := parse("", name, ".", source)
	return reading.definition()
}

func parse(path, name, start string, source []byte) Reading {
	sum := sha256.Sum256(source)
	def := &Definition{Name: name, Path: path, Hash: hex.EncodeToString(sum[:]), Source: bytes.Clone(source)}
	problems := &strictyaml.Problems{Path: def.label()}
	if err := turnkeeper.CheckAgentName(name); err != nil {
		problems.Add(0, "the file's name is the agent's, and then .md: %s", err)
	}
	reading := Reading{Path: path}
	if body, ok := clean(problems, source); ok {
		front, prompt, ok := split(problems, body)
		if ok {
			node, err := strictyaml.Parse(front, 2)
			if err != nil {
				problems.AddSyntax(err)
			}
			(&reader{Decoder: strictyaml.Decoder{Problems: problems}, def: def, start: start}).read(node)
			def.Prompt = prompt
			reading.Definition, reading.settings = def, node
		}
	}
	reading.took(problems.Errors())
	return reading
}

// clean gives the text with LF line ends and without a byte order mark.
func clean(problems *strictyaml.Problems, source []byte) (string, bool) {
	if len(source) > MaxSize {
		problems.Add(0, "the file has %d bytes: at most %d are allowed", len(source), MaxSize)
		return "", false
	}
	text := strings.TrimPrefix(string(source), "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if i := firstInvalid(text); i >= 0 {
		problems.Add(1+strings.Count(text[:i], "\n"), "this line is not UTF-8 text: save the file as UTF-8")
		return "", false
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		problems.Add(1+strings.Count(text[:i], "\n"), "this line holds a NUL byte: remove it")
		return "", false
	}
	return text, true
}

func firstInvalid(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	for i, r := range text {
		if _, size := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 {
			return i
		}
	}
	return -1
}

// split parts the front matter from the prompt.
func split(problems *strictyaml.Problems, text string) (front, prompt string, ok bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if !isFence(first) {
		problems.Add(1, "the file must begin with a line --- and its settings; without any, with two such lines")
		return "", "", false
	}
	line := 1
	for at := 0; at < len(rest); {
		line++
		current, _, _ := strings.Cut(rest[at:], "\n")
		if isFence(current) {
			prompt = strings.TrimSpace(rest[min(len(rest), at+len(current)):])
			if prompt == "" {
				problems.Add(line, "the system prompt is empty: write it below this line")
			}
			return rest[:at], prompt, true
		}
		at += len(current) + 1
	}
	problems.Add(1, "the settings have no end: put a line --- between them and the system prompt")
	return "", "", false
}

func isFence(line string) bool { return strings.TrimRight(line, " \t") == "---" }
