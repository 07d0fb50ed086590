// Package inferencetest helps to test users and implementations of inference.Provider: a
// scripted Provider (Script), a scripted HTTP server that can send any bytes, status, delay or
// cut (Server), a check of what strict providers refuse (Strict, Violations), and a test suite
// for Providers (RunProviderSuite). Server and suite work over any Wire: Chat Completions or Messages.
package inferencetest
