//go:build !linux && !darwin

package main

var handicapped map[string]func()
