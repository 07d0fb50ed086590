// Package strictyaml reads the part of YAML that settings need into tagged
// structs, and names every fault of a file with its line.
//
// What makes settings hard to read is refused: anchors, aliases, tags, merge
// keys, directives, several documents, keys that are not text. Numbers are
// plain decimals; a number with a leading zero, 0x or _ is not one.
//
// The lexer and parser are goccy/go-yaml's. Its decoder is not used, even with
// yaml.Strict: it ends with the first fault, prints the lines around it, which
// may hold secrets, takes 5 for a text and "3", 010, 0x10 and 2.0 for whole
// numbers, follows merge keys, and leaves out a second document. The test
// TestTheDecoderOfTheLibrary shows it.
//
// The package knows no setting and imports nothing of this module. Its types
// are plain values for one goroutine at a time.
package strictyaml
