// Package archtest holds the order of this module's packages, and checks that
// every import follows it.
//
// arrows.txt says which package may import which; doors.txt says which package
// may import which outside library. A package or a library that neither file
// knows is an error as well: a new one gets its place on purpose.
//
// programs/ says what each program links, with a reason for what is heavy.
package archtest

//go:generate go test . -run TestPrograms -update
