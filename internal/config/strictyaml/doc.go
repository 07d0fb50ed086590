// Package strictyaml reads the part of YAML that settings need: mappings,
// lists, text, numbers, true and false, each with the line it stands on, so
// that every fault of a file can be named with its place.
//
// What makes settings hard to read is refused: anchors, aliases, tags, merge
// keys, directives, several documents, keys that are not text. Numbers are
// plain decimals; a number with a leading zero, 0x or _ is not one. The
// package knows no setting and imports nothing of this module. Its types are
// plain values for one goroutine at a time.
package strictyaml
