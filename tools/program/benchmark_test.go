package program_test

import (
	"testing"
)

// BenchmarkCall measures a call of a program that does nothing.
func BenchmarkCall(b *testing.B) {
	for b.Loop() {
		execute(b, sh(""), `{}`, patience)
	}
}
