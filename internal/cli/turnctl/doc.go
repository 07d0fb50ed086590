// Package turnctl is the operator's program, one file per command. Commands read through package storage and print
// text for people or JSON for programs (names of fields in snake_case, times in RFC 3339, lists as arrays).
package turnctl
