// Package worker is the program that runs turns, and its benchmark.
package worker
