// Package archtest holds the order of this module's packages and the bounds of
// their sizes, and checks that every import and every package follows them.
//
// arrows.txt says which package may import which; doors.txt says which package
// may import which outside library. A package or a library that neither file
// knows is an error as well: a new one gets its place on purpose. sizes.txt lists
// the types and packages that may be larger than MaxMethods and MaxExported.
//
// programs/ says what each program links, with a reason for what is heavy.
package archtest

//go:generate go test . -run TestPrograms -update
