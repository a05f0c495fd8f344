package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version overrides the version that the Go tool records:
//
//	go build -ldflags "-X main.version=v1.2.3" ./cmd/onnxquant
var version string

func versionCommand() command {
	return command{
		name: "version", summary: "show the version",
		args:  []string{""},
		text:  "Shows the version of onnxquant, of Go, and the platform.",
		flags: helpFlagAlone,
		run:   runVersion,
	}
}

func runVersion(_ context.Context, c *console, args []string) error {
	fs := helpFlagAlone()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if fs.Changed("help") {
		return c.help("version")
	}
	if fs.NArg() > 0 {
		return usagef("version takes no arguments; for a model file named version, write ./version")
	}
	printVersion(c)
	return nil
}

func printVersion(c *console) {
	fmt.Fprintf(c.stdout, "onnxquant %s (%s%s %s/%s)\n", buildVersion(), commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commit returns the first digits of the commit that the command was built from, if the Go tool
// recorded it.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) > 12 {
				return s.Value[:12] + ", "
			}
		}
	}
	return ""
}

// buildDate is the day of the commit that the command was built from, or "".
func buildDate() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" && len(s.Value) >= len("2006-01-02") {
				return s.Value[:len("2006-01-02")]
			}
		}
	}
	return ""
}

func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	// A tag, with +dirty if files were changed since; "(devel)" outside a repository.
	return strings.Trim(info.Main.Version, "()")
}
