package config

//go:generate go run ./refgen
