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

// MaxSize is the maximum size of an agent file, in bytes. Its front matter may have 64 KiB
// and 2000 lines.
const MaxSize = 1 << 20

// A Problem is one fault of an agent file: path, line (0: the whole file) and a sentence.
// Errors about agent files are one Problem, or several joined.
type Problem = strictyaml.Problem

// Parse parses the text of one agent's file. It does not open the file. The agent's name is
// the file's name without .md, and must satisfy turnkeeper.CheckAgentName. A relative root
// is made absolute, starting at the parent of the agents folder, which is the folder of path.
//
// The text begins with a line "---". Another such line ends the front matter, which may be
// empty. The rest, trimmed, is the system prompt, which must not be empty. The text must be
// UTF-8 without NUL, at most MaxSize bytes. A byte order mark and CRLF line ends are
// accepted; the prompt has LF line ends.
//
// An agent without a model has an empty Model, which means the process's default. Parse sets
// all other defaults that Definition and Schedule document and that are not the zero value.
// The error joins all faults of the file, each a *Problem, in the order of lines. On an error
// there is no Definition.
func Parse(path string, source []byte) (*Definition, error) {
	reading := inspect(path, source)
	return reading.definition()
}

func inspect(path string, source []byte) Reading {
	name := strings.TrimSuffix(filepath.Base(path), ".md")
	return parse(path, name, filepath.Join(filepath.Dir(path), ".."), source)
}

// ParseRecorded parses the definition that is recorded with a turn. It is as strict as Parse:
// an unknown key is an error, because the agent must not run without its setting. Path is
// empty. A relative root starts at the working directory; if the agents folder is elsewhere,
// use Parse with the path of the file there.
func ParseRecorded(name string, source []byte) (*Definition, error) {
	reading := parse("", name, ".", source)
	return reading.definition()
}

func parse(path, name, start string, source []byte) Reading {
	sum := sha256.Sum256(source)
	def := &Definition{Name: name, Path: path, Hash: hex.EncodeToString(sum[:]), Source: bytes.Clone(source)}
	problems := &strictyaml.Problems{Path: def.label()}
	if err := turnkeeper.CheckAgentName(name); err != nil {
		problems.Add(0, "the file's name must be the agent's name and .md: %s", err)
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
	reading.setFaults(problems.Errors())
	return reading
}

// clean returns the text with LF line ends and without a byte order mark. ok is false if it
// is too large or not valid text.
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
		problems.Add(1+strings.Count(text[:i], "\n"), "this line contains a NUL byte: remove it")
		return "", false
	}
	return text, true
}

// firstInvalid returns the index of the first byte that is not UTF-8, or -1.
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

// split splits the text into the front matter and the prompt.
func split(problems *strictyaml.Problems, text string) (front, prompt string, ok bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if !isFence(first) {
		problems.Add(1, "the file must begin with a line ---, the settings, and another line ---")
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
