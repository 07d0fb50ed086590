// Package turnctl is the operator's program, one file per command. Commands use package storage/operate and print text
// or JSON (fields in snake_case, times in RFC 3339, lists as arrays).
package turnctl
