// Package process starts commands that end with what started them, and with all that they start.
package process
