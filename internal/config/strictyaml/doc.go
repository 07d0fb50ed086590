// Package strictyaml decodes a subset of YAML into tagged structs, and reports every fault of a file with
// its line.
//
// It refuses YAML that makes settings hard to read: anchors, aliases, tags, merge keys, directives,
// several documents, keys that are not text. Numbers are plain decimals without leading zeros, 0x or _.
//
// The lexer and parser are goccy/go-yaml's. Its decoder is not used, even with yaml.Strict: it stops at
// the first fault, prints the lines around it, which may contain secrets, accepts 5 as a text and "3",
// 010, 0x10 and 2.0 as integers, follows merge keys, and ignores a second document. The test
// TestTheDecoderOfTheLibrary shows this.
//
// The package does not know any setting and imports no other package of the module. Its types are not
// safe for concurrent use.
package strictyaml
