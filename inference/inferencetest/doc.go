// Package inferencetest helps to test users and implementations of inference.Provider: a
// scripted Provider (Script), a scripted HTTP server that can send any bytes, status, delay or
// cut (Server), a check of what strict providers refuse (Strict, Violations), what they sign and cache (Account for
// bodies, Signer for requests), and a test suite for Providers (RunProviderSuite). Server, Account and suite work over
// any Wire.
package inferencetest
