package config

//go:generate go -C ../../dev run ./refgen/config
