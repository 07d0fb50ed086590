// Package cli is the three commands: worker, enqueue and turnctl. A Program is
// a value; what belongs to the operating system comes to it in an Environment,
// so that a test runs it with buffers.
//
// Commands read through package storage and print in two ways: text for
// people, JSON for programs (names of fields in snake_case, times in RFC 3339,
// lists as arrays). Text that models, tools or senders wrote is never printed
// as it came: what a terminal would obey is escaped.
//
// The package is the only importer of cobra. It decides nothing about messages
// and turns: that is for the packages below.
package cli
