// Package inferencetest tests what talks to language models: a scripted
// Provider for unit tests of callers (Script), a scripted HTTP server that can
// send any bytes, status, delay or cut (Server), a checker that refuses what
// strict providers refuse (Strict), and the suite that a Provider of an
// OpenAI-compatible wire passes (RunProviderSuite).
package inferencetest
